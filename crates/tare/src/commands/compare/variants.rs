//! The variants of a command line: URLs, commands and images, and their names.

use std::collections::BTreeSet;
use std::path::Path;

use clap::ArgMatches;
use tare_io::DurationNs;
use tare_lab::machine::programs;
use tare_model::Failure;
use tare_model::places::PlaceSpec;
use tare_model::servers::{CommandSpec, ServerSpec};
use tare_model::variant::Variant;

use super::{Compare, image};

pub const READY_WITHIN: DurationNs = DurationNs::from_secs(10);
/// Default URL of a server that tare starts.
const LAUNCHED_URL: &str = "http://127.0.0.1:{port}/";

/// How a variant is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given<'a> {
    Url(&'a str),
    Command(&'a str),
    /// An image, and the engine if it is named.
    Image {
        engine: Option<&'a str>,
        image: &'a str,
    },
}

impl<'a> Given<'a> {
    /// A single word that is no path is an address without its scheme.
    fn new(text: &'a str) -> Self {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let is_path = text.starts_with(['.', '/', '~']);
        let is_program = || text.contains('/') && Path::new(text).is_file();
        match scheme {
            _ if text.contains(' ') => Self::Command(text),
            "docker" => Self::Image { engine: None, image: rest },
            "podman" | "nerdctl" => Self::Image { engine: Some(scheme), image: rest },
            "" if text.contains(":{port}") => Self::Url(text),
            "" if is_path || text.contains(['{', '$']) || is_program() => Self::Command(text),
            _ => Self::Url(text),
        }
    }

    /// Returns how and where tare starts the server; `None` for a URL, because that server runs.
    fn launched(
        self,
        ready_within: DurationNs,
    ) -> Result<Option<(ServerSpec, PlaceSpec)>, Failure> {
        let command = |command: &str, argv: Vec<String>| {
            ServerSpec::Command(CommandSpec {
                command: command.to_owned(),
                argv,
                env: Default::default(),
                ready_within_ms: ready_within.as_ns() / 1_000_000,
                access_log: None,
            })
        };
        Ok(Some(match self {
            Self::Url(_) => return Ok(None),
            Self::Command(text) => (command(text, Vec::new()), PlaceSpec::host()),
            Self::Image { engine, image } => {
                let image::Found { place, argv } = image::find(image, engine)?;
                (command(&argv.join(" "), argv), PlaceSpec::Container(place))
            }
        }))
    }

    /// Fails for a word that is no address.
    fn check_address(self) -> Result<(), Failure> {
        match self {
            Self::Url(url) if !url.contains(['.', ':', '/']) && url != "localhost" => {
                Err(Failure::usage(format!(
                    "{url}: neither a URL (http://host:port/) nor a command ('{url} --port \
                     {{port}}', ./{url})"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of a variant without one; commands get theirs together.
    fn own_name(self) -> Option<&'a str> {
        match self {
            Self::Url(name) | Self::Image { image: name, .. } => Some(name),
            Self::Command(_) => None,
        }
    }
}

/// Splits `NAME=VALUE`. What stands before a '=' in a URL or command is no name.
fn split_name(text: &str) -> (Option<&str>, Given<'_>) {
    match text.split_once('=') {
        Some((name, value)) if !name.contains(['/', ':', '?']) && !is_of_a_command(name, value) => {
            (Some(name), Given::new(value))
        }
        _ => (None, Given::new(text)),
    }
}

/// Whether the '=' stands in a command: after a flag, as in `java -Da=b`, or in a variable's
/// assignment, as in `A=1 ./server`.
fn is_of_a_command(name: &str, value: &str) -> bool {
    let has_flag = name.split(' ').skip(1).any(|word| word.starts_with('-'));
    let splits_words = name.contains(' ') && matches!(Given::new(value), Given::Command(_));
    let is_variable =
        name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let starts_program = || {
        let first = value.split(' ').next().unwrap_or_default();
        first.contains('/') || programs::find(&[first]).is_some()
    };
    has_flag || splits_words || is_variable && value.contains(' ') && !starts_program()
}

/// Splits the value of --launch.
fn launch(text: &str) -> Result<(String, &str), Failure> {
    let Some((name, command)) = text.split_once('=') else {
        let allowed = "write NAME='command', for example a='./server --port {port}'";
        return Err(Failure::flag("--launch", text, allowed));
    };
    Ok((name.to_owned(), command))
}

/// Names commands by the shortest of these that tells them apart: the program, its path, the whole.
fn names_of(commands: &[&str]) -> Vec<String> {
    let program = |command: &str| command.split_whitespace().next().unwrap_or_default().to_owned();
    let file = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
    let whole: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
    let paths: Vec<String> = commands.iter().map(|command| program(command)).collect();
    let files: Vec<String> = paths.iter().cloned().map(file).collect();
    let differ = |names: &Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    [files, paths].into_iter().find(differ).unwrap_or(whole)
}

/// Makes a variant of a URL, a command or an image.
pub fn variant(name: &str, text: &str, ready_within: DurationNs) -> Result<Variant, Failure> {
    let given = Given::new(text);
    given.check_address()?;
    Ok(match (given, given.launched(ready_within)?) {
        (Given::Url(url), _) => Variant::new(name, url, ServerSpec::External),
        (_, None) => Variant::new(name, text, ServerSpec::External),
        (_, Some((server, place))) => Variant { place, ..Variant::new(name, LAUNCHED_URL, server) },
    })
}

/// Adds what starts a server to the variant with that name, or adds such a variant.
fn start(variants: &mut Vec<Variant>, added: Variant) -> Result<(), Failure> {
    match variants.iter_mut().find(|variant| variant.name == added.name) {
        Some(known) if known.server == ServerSpec::External => {
            (known.server, known.place) = (added.server, added.place);
        }
        Some(_) => {
            let name = added.name;
            let text = format!("two variants are called '{name}'; give each its own NAME=");
            return Err(Failure::usage(text));
        }
        None => variants.push(added),
    }
    Ok(())
}

impl Compare {
    /// Returns the names and values of the variants that are given without a flag.
    fn given(&self) -> Vec<(String, Given<'_>)> {
        let all: Vec<_> = self.words.iter().map(|text| split_name(text)).collect();
        let unnamed: Vec<&str> = all
            .iter()
            .filter_map(|given| match given {
                (None, Given::Command(command)) => Some(*command),
                _ => None,
            })
            .collect();
        let mut names = names_of(&unnamed).into_iter();
        all.into_iter()
            .map(|(name, given)| match name.or(given.own_name()) {
                Some(name) => (name.to_owned(), given),
                None => (names.next().unwrap_or_default(), given),
            })
            .collect()
    }

    /// Returns the variants in the order in which they were typed.
    pub(super) fn variants(&self) -> Result<Vec<Variant>, Failure> {
        let given = self.given();
        let starts = given.iter().any(|(_, given)| !matches!(given, Given::Url(_)));
        let starts = starts || !self.launch.is_empty();
        let mut of_launches = LAUNCHED_URL;
        let mut is_given = false;
        let mut variants = Vec::new();
        for (name, given) in &given {
            let Given::Url(url) = *given else { continue };
            // A URL with {port} and no name applies to all launched servers without one of their
            // own.
            if name == url && url.contains("{port}") && starts {
                if std::mem::replace(&mut is_given, true) {
                    let allowed = "two URLs without a name have {port}; write NAME=URL";
                    return Err(Failure::usage(format!("{url}: {allowed}")));
                }
                of_launches = url;
                continue;
            }
            given.check_address()?;
            variants.push(self.variant(name, url, ServerSpec::External));
        }
        for (name, given) in &given {
            if let Some((server, place)) = given.launched(self.ready_within())? {
                let added = Variant { place, ..self.variant(name, of_launches, server) };
                start(&mut variants, added)?;
            }
        }
        for text in &self.launch {
            let (name, command) = launch(text)?;
            if let Some((server, _)) = Given::Command(command).launched(self.ready_within())? {
                start(&mut variants, self.variant(&name, of_launches, server))?;
            }
        }
        self.set_sockets(&mut variants)?;
        // The first variant typed, by URL or by --launch, is the baseline.
        let at = |variant: &Variant| self.typed.iter().position(|name| *name == variant.name);
        variants.sort_by_key(|variant| at(variant).unwrap_or(usize::MAX));
        Ok(variants)
    }

    fn variant(&self, name: &str, url: &str, server: ServerSpec) -> Variant {
        Variant { exclusive: self.exclusive, ..Variant::new(name, url, server) }
    }

    fn ready_within(&self) -> DurationNs {
        self.ready_within.unwrap_or(READY_WITHIN)
    }

    fn set_sockets(&self, variants: &mut [Variant]) -> Result<(), Failure> {
        for text in &self.unix_socket {
            let (name, path) = text.split_once('=').unwrap_or_default();
            let Some(variant) = variants.iter_mut().find(|variant| variant.name == name) else {
                let allowed =
                    "write NAME=PATH with the name of a variant, for example a=/run/a.sock";
                return Err(Failure::flag("--unix-socket", text, allowed));
            };
            if path.is_empty() || variant.unix_socket.is_some() {
                let allowed = "write one path for each variant";
                return Err(Failure::flag("--unix-socket", text, allowed));
            }
            variant.unix_socket = Some(std::path::absolute(path).unwrap_or_else(|_| path.into()));
        }
        Ok(())
    }

    /// Records the order in which variants were typed.
    pub fn record_order(&mut self, matches: &ArgMatches) {
        let indices = |id: &str| matches.indices_of(id).into_iter().flatten();
        let named = self.given().into_iter().map(|(name, _)| name);
        let launches = self.launch.iter();
        let launches = launches.map(|t| t.split_once('=').map_or("", |(name, _)| name).to_owned());
        let mut all: Vec<(usize, String)> =
            indices("variants").zip(named).chain(indices("launch").zip(launches)).collect();
        all.sort_unstable();
        self.typed = all.into_iter().map(|(_, name)| name).collect();
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        compare: Compare,
    }

    #[test]
    fn variants_have_the_order_in_which_they_were_typed() {
        let ordered = |words: &[&str]| {
            let words = std::iter::once("compare").chain(words.iter().copied());
            let matches = Alone::command().try_get_matches_from(words).unwrap();
            let mut alone = Alone::from_arg_matches(&matches).unwrap();
            alone.compare.record_order(&matches);
            let all = alone.compare.variants().unwrap();
            all.into_iter().map(|variant| variant.name).collect::<Vec<_>>()
        };
        let launch = ["--launch", "a=./a {port}", "b=http://b/", "http://c/"];
        assert_eq!(ordered(&launch), ["a", "b", "http://c/"]);
        let mixed = ["http://c/", "--launch=a=./a {port}", "b=http://b/"];
        assert_eq!(ordered(&mixed), ["http://c/", "a", "b"]);
        let body = ["-b", "b=1", "--name", "a=x", "http://c/", "b=http://b/", "--launch", "a=x"];
        assert_eq!(ordered(&body), ["http://c/", "b", "a"], "other flags' values are no variants");
        let both = ["b=http://h:1/", "a=http://h:2/", "--launch", "a=x", "--launch", "b=x"];
        assert_eq!(ordered(&both), ["b", "a"]);
        let commands = ["./new --port {port}", "old=./old", "http://c/"];
        assert_eq!(ordered(&commands), ["new", "old", "http://c/"]);
    }

    #[test]
    fn commands_urls_and_images_are_told_apart() {
        let url = "http://h:1/?a=b";
        assert_eq!(split_name(url), (None, Given::Url(url)));
        let named = split_name("no filter=http://h/");
        assert_eq!(named, (Some("no filter"), Given::Url("http://h/")));
        assert_eq!(split_name("127.0.0.1:80"), (None, Given::Url("127.0.0.1:80")));
        assert_eq!(split_name("a=./a b=c"), (Some("a"), Given::Command("./a b=c")));
        assert_eq!(split_name("B=./b --port {port}").0, Some("B"));
        assert_eq!(split_name("localhost:{port}/x"), (None, Given::Url("localhost:{port}/x")));
        for command in [
            "./a",
            "/a",
            "a --port={port}",
            "java -Durl=http://h/ -jar a",
            "java -jar a -Durl=http://h/",
            "node a --workers=4",
            "WORKERS=2 ./a",
            "a $PORT",
        ] {
            assert_eq!(split_name(command), (None, Given::Command(command)));
        }
        let image = Given::Image { engine: None, image: "nginx:1.27" };
        assert_eq!(split_name("docker://nginx:1.27"), (None, image));
        let image = Given::Image { engine: Some("podman"), image: "r.io/a@sha256:0" };
        assert_eq!(split_name("new=podman://r.io/a@sha256:0"), (Some("new"), image));
    }

    #[test]
    fn commands_are_named_by_what_tells_them_apart() {
        assert_eq!(names_of(&["./old -p {port}", "bin/new"]), ["old", "new"]);
        assert_eq!(names_of(&["old/server -p 1", "new/server -p 1"]), ["old/server", "new/server"]);
        assert_eq!(names_of(&["node a.js", "node b.js"]), ["node a.js", "node b.js"]);
    }
}
