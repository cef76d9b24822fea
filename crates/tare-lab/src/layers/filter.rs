//! A URL filter: it goes into nginx itself, as a module, directives and a status page.

use std::path::PathBuf;

use tare_model::filters::{FilterKind, FilterSpec};

use super::{Inserted, LayerKind, LayerProof, ProofContext};
use crate::filters;
use crate::filters::proof::FilterProof;
use crate::filters::status::{FilterStatus, PAGE};
use crate::launch::Launched;
use crate::launch::context::{LaunchContext, utf8};
use crate::launch::hop::Hop;
use tare_model::Failure;

impl LayerKind for FilterSpec {
    fn describe(&self) -> Result<String, Failure> {
        let controller = match self.filter.is_controlled() {
            true => "; before it a controller, with shared memory tare-…",
            false => "",
        };
        Ok(format!("{}{controller}", filters::describe(self)?))
    }

    fn check_machine(&self) -> Result<(), Failure> {
        filters::check_machine(self.filter)
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        filters::needs(self)
    }

    fn insert(&self, context: &LaunchContext<'_>, into: &mut Inserted) -> Result<(), Failure> {
        if self.filter == FilterKind::Off {
            return Ok(());
        }
        let shared = filters::shared_name(self, context.folder);
        let module = filters::module()?;
        into.nginx.main.push_str(&format!("load_module \"{}\";", utf8(&module)?));
        into.nginx.http.push_str(&filters::directives(self, shared.as_deref())?);
        into.nginx.pages.push_str(&format!(
            "tare_filter off;
        location = {PAGE} {{ tare_filter_status; access_log off; }}"
        ));
        into.env.extend(filters::environment(self, shared.as_deref())?);
        if let Some(name) = shared {
            into.companion = Some(filters::controller(self, &name)?);
        }
        Ok(())
    }

    fn begin_proof(
        &self,
        launched: &Launched,
        _: &[&Hop],
        proof: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, Failure> {
        let pages = launched.launch_spec.pages.filter(|_| self.filter != FilterKind::Off);
        let Some(address) = pages else { return Ok(None) };
        let status = FilterStatus { address };
        let proof = FilterProof::begin(self, &launched.server, status, proof)?;
        Ok(Some(Box::new(proof)))
    }
}
