//! tare's own server of known truth.

use std::path::PathBuf;

use tare_io::DurationNs;
use tare_model::servers::TargetSpec;

use super::{Kitchen, ServerKind, utf8};
use crate::count::{CountPage, CountSource};
use crate::error::LabError;
use crate::launch::Recipe;
use crate::programs;

const READY_WITHIN: DurationNs = DurationNs::from_secs(5);

impl ServerKind for TargetSpec {
    fn describe(&self) -> Result<String, LabError> {
        Ok(format!("starts: tare target {}", self.flags().join(" ")))
    }

    fn needs(&self) -> Result<Vec<PathBuf>, LabError> {
        Ok(vec![programs::own()?])
    }

    fn recipe(&self, kitchen: &Kitchen<'_>) -> Result<Recipe, LabError> {
        let tare = programs::own()?;
        let address = kitchen.address()?;
        let mut argv: Vec<String> =
            [utf8(&tare)?, "target", "--listen"].map(str::to_owned).to_vec();
        argv.push(address.to_string());
        argv.extend(self.flags());
        let path = "/stats".to_owned();
        // Its count is read without TLS.
        let count = CountSource::Page { address, path, page: CountPage::TareTarget };
        let recipe = kitchen.recipe(argv, address, READY_WITHIN);
        Ok(Recipe { tls: self.tls, count: (!self.tls).then_some(count), ..recipe })
    }
}
