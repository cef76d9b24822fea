//! This machine itself: no place is created.

use tare_model::Failure;
use tare_model::places::{HostSpec, Limits, PlaceFacts};

use super::{Place, PlaceContext, PlaceKind, need_root};

impl PlaceKind for HostSpec {
    fn check_machine(&self) -> Result<String, Failure> {
        if self.limits() != Limits::default() {
            need_root("a limit of CPU or memory")?;
        }
        Ok("yes".into())
    }

    fn place(&self, _: PlaceContext) -> Option<Box<dyn Place>> {
        None
    }
}
