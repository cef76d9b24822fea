//! `tare sys`: mistakes.

use crate::util::tare;

#[test]
fn mistakes_are_told() {
    tare(&["sys", "getpit"]).fails(2, "'getpit' is not a call that tare makes; choose among mix");
    tare(&["sys", "-d", "1ms"]).fails(2, "--duration 1ms: 12 calls in 20 launches need");
    tare(&["sys", "--copies", "1000"]).fails(2, "--copies 1000: there are ");
    tare(&["sys", "--launches", "1"]).fails(2, "--launches");
}
