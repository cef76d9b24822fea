//! Layers that are processes: mistakes.

use crate::runs::{Desk, layered};
use crate::util::str;

#[test]
fn what_no_layer_can_be_is_refused() {
    let desk = Desk::new("layers-mistakes");
    let proxy = "[{ proxy = \"haproxy\" }]";
    for (layers, more, complaint) in [
        ("[{ proxy = \"squid\" }]", "", "unknown word 'squid'"),
        ("[{ proxy = \"haproxy\", threads = 0 }]", "", "proxy haproxy: threads = 0: write 1 to 64"),
        ("[{ prxy = \"haproxy\" }]", "", "unknown key 'prxy'; did you mean 'proxy'?"),
        (proxy, "url = \"http://127.0.0.1:8080/\"", "leave out the port in url"),
        (proxy, "client = \"netns\"", "it runs on this machine, as its client must"),
    ] {
        let file = desk.file("layers.toml", &layered(layers, more));
        desk.tare(&["run", str(&file)]).fails(2, complaint);
    }
}
