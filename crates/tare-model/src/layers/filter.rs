//! A URL filter in nginx, which runs inside the server itself.

use std::path::PathBuf;

use super::LayerFacts;
use crate::Invalid;
use crate::filters::FilterSpec;
use crate::variant::Variant;

impl LayerFacts for FilterSpec {
    fn name(&self) -> String {
        format!("filter {}", self.filter.name())
    }

    fn check(&self, variant: &Variant) -> Result<(), Invalid> {
        if variant.filters().count() > 1 {
            return Err("one filter can be in its path".into());
        }
        if !variant.place.facts().shares_host_files() {
            return Err(
                "its place has an nginx of its own, which tare's filters are not built for".into(),
            );
        }
        variant.server.facts().check_filters()?;
        let path = variant.url.splitn(4, '/').nth(3).unwrap_or_default();
        if path.contains(['%', '?', '#']) || path.contains("//") || path.contains("/.") {
            return Err(Invalid(format!(
                "path /{path}: with a filter, write it as nginx serves it: without %, ?, // and /."
            )));
        }
        self.check_settings()
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        [&mut self.path, &mut self.code].into_iter().flatten().collect()
    }
}
