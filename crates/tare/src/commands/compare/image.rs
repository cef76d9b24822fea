//! Finds an image that a container engine has, and what it runs.

use serde::Deserialize;
use tare_io::DurationNs;
use tare_lab::machine::commands::run;
use tare_lab::machine::packages::how_to_install;
use tare_lab::machine::programs;
use tare_lab::places::container;
use tare_model::Failure;
use tare_model::places::{ContainerSpec, ENGINES};

/// An image, and how to start its server.
#[derive(Debug)]
pub struct Found {
    pub place: ContainerSpec,
    pub argv: Vec<String>,
}

/// What an engine says of an image.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

const TIMEOUT: DurationNs = DurationNs::from_secs(30);

/// Looks for the image in this engine, or in each that is installed.
pub fn find(image: &str, engine: Option<&str>) -> Result<Found, Failure> {
    let named = ContainerSpec { image: image.to_owned(), ..container::podman_here() };
    tare_model::places::PlaceFacts::check(&named)?;
    let engines = ENGINES.into_iter().filter(|known| engine.is_none_or(|engine| engine == *known));
    let here: Vec<&str> = engines.filter(|engine| programs::find(&[engine]).is_some()).collect();
    let Some(first) = here.first() else {
        let engine = engine.unwrap_or("podman, docker or nerdctl");
        let how = how_to_install("podman");
        let text = format!("image {image}: {engine} is not installed ({how})");
        return Err(Failure::environment(text));
    };
    for engine in &here {
        let argv = [*engine, "image", "inspect", "--format", "{{json .Config}}", image];
        let said = run(&argv, TIMEOUT);
        if !said.worked {
            continue;
        }
        let argv = argv_of(&said.out).map_err(|why| {
            Failure::environment(format!("image {image}: {engine}'s description: {why}"))
        })?;
        if argv.is_empty() {
            let text = format!("image {image} does not say what it runs (no entrypoint, no cmd)");
            return Err(Failure::usage(text));
        }
        let place = match *engine {
            "podman" => named,
            other => ContainerSpec { image: named.image, ..ContainerSpec::of_engine(other) },
        };
        return Ok(Found { place: ContainerSpec { writable: true, ..place }, argv });
    }
    Err(Failure::environment(format!(
        "image {image}: not known to {}: get it first ({first} pull {image}, or {first} load -i \
         FILE)",
        here.join(" or ")
    )))
}

fn argv_of(json: &str) -> Result<Vec<String>, serde_json::Error> {
    let config: Config = serde_json::from_str(json.trim())?;
    let words = config.entrypoint.unwrap_or_default();
    Ok(words.into_iter().chain(config.cmd.unwrap_or_default()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_runs_its_entrypoint_and_its_cmd() {
        let nginx = r#"{"Cmd":["nginx","-g","daemon off;"],"Entrypoint":["/docker-entrypoint.sh"],
                        "ExposedPorts":{"80/tcp":{}},"User":""}"#;
        let expected = ["/docker-entrypoint.sh", "nginx", "-g", "daemon off;"];
        assert_eq!(argv_of(nginx).unwrap(), expected);
        assert_eq!(argv_of(r#"{"Cmd":["/a"],"Entrypoint":null}"#).unwrap(), ["/a"]);
        assert!(argv_of("{}").unwrap().is_empty());
        assert!(argv_of("no such image").is_err());
    }

    #[test]
    fn names_of_images_are_checked() {
        let refused = |name| find(name, None).unwrap_err().to_string();
        assert!(refused("").contains("name an image"));
        for name in ["--privileged", "a b"] {
            assert!(refused(name).contains("is not the name of an image"), "{name}");
        }
    }
}
