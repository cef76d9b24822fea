//! Experiments with layers.

/// Returns an experiment in which one of two servers of tare has these layers.
pub fn layered(layers: &str, more: &str) -> String {
    format!(
        "name = \"layers\"\n[load]\nconnections = 4\n[stop]\nrounds = 3\n\
         [slices]\nwindow = \"20ms\"\ncycles = 2\n\
         [server.s]\ntarget = {{}}\n\
         [[variant]]\nname = \"plain\"\nserver = \"s\"\n\
         [[variant]]\nname = \"layered\"\nserver = \"s\"\nlayers = {layers}\n\
         may_differ = [\"headers\"]\n{more}\n"
    )
}

pub const HEAD: &str = "name = \"sidecars\"\n[load]\nconnections = 4\n[stop]\nrounds = 2\n\
    [slices]\nwindow = \"20ms\"\ncycles = 2\nno_sustained = true\n\
    [server.web]\nnginx = { workers = 1, body_bytes = 65 }\n";

/// A variant in namespaces, with these layers.
pub fn variant(name: &str, layers: &str) -> String {
    format!(
        "[[variant]]\nname = \"{name}\"\nserver = \"web\"\nplace = \"netns\"\nclient = \"netns\"\n\
         may_differ = [\"headers\"]\nlayers = [{layers}]\n"
    )
}

/// A variant on this machine, with these layers.
pub fn on_host(name: &str, layers: &str) -> String {
    format!(
        "[[variant]]\nname = \"{name}\"\nserver = \"web\"\nmay_differ = [\"headers\", \"tls\"]\n\
         layers = [{layers}]\n"
    )
}
