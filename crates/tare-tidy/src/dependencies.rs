//! Rules for what we build on, from `deny.toml` and cargo's own metadata; needs no network.

use std::collections::BTreeSet;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub struct Rules {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Sources {
    #[serde(rename = "allow-registry")]
    allow_registry: Vec<String>,
}

/// The part of `cargo metadata` that is looked at.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    pub license_file: Option<String>,
    /// `None` for our own.
    pub source: Option<String>,
}

impl Rules {
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Complaints about the packages.
    pub fn check(&self, metadata: &Metadata) -> Vec<String> {
        let mut complaints = Vec::new();
        for package in &metadata.packages {
            let Package { name, version, license, license_file, source } = package;
            let mut complain = |what: String| complaints.push(format!("{name} {version}: {what}"));
            if let Some(ban) = self.bans.deny.iter().find(|ban| ban.name == *name) {
                complain(format!("banned: {}", ban.reason));
            }
            match license {
                Some(license) if self.allows(license) => {}
                Some(license) => complain(format!("licence '{license}' is not allowed")),
                None if license_file.is_some() => complain("licence only as a file".into()),
                None => complain("no licence".into()),
            }
            if let Some(source) = source {
                let registry = source.strip_prefix("registry+").unwrap_or(source);
                if !self.sources.allow_registry.iter().any(|allowed| allowed == registry) {
                    complain(format!("comes from {source}"));
                }
            }
        }
        complaints
    }

    /// An SPDX expression of OR, AND, parentheses and the old slash, with exceptions (WITH) taken
    /// as harmless.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let tokens: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = &tokens[..];
        let allowed = self.any_of(&mut rest);
        allowed && rest.is_empty()
    }

    fn any_of(&self, tokens: &mut &[&str]) -> bool {
        let mut allowed = self.all_of(tokens);
        while tokens.first() == Some(&"OR") {
            *tokens = &tokens[1..];
            allowed |= self.all_of(tokens);
        }
        allowed
    }

    fn all_of(&self, tokens: &mut &[&str]) -> bool {
        let mut allowed = self.one(tokens);
        while tokens.first() == Some(&"AND") {
            *tokens = &tokens[1..];
            allowed &= self.one(tokens);
        }
        allowed
    }

    fn one(&self, tokens: &mut &[&str]) -> bool {
        let Some((first, rest)) = tokens.split_first() else { return false };
        *tokens = rest;
        if *first == "(" {
            let allowed = self.any_of(tokens);
            *tokens = tokens.strip_prefix(&[")"]).unwrap_or(tokens);
            return allowed;
        }
        if tokens.first() == Some(&"WITH") {
            *tokens = &tokens[tokens.len().min(2)..];
        }
        self.licenses.allow.contains(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules::parse(
            "[licenses]\nallow = ['MIT', 'ISC']\n\
             [bans]\ndeny = [{ name = 'left-pad', reason = 'no' }]\n\
             [sources]\nallow-registry = ['https://good']\n",
        )
        .unwrap()
    }

    #[test]
    fn licence_expressions() {
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0/MIT", true),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("(GPL-2.0 OR GPL-3.0) AND ISC", false),
            ("GPL-3.0 OR MIT WITH LLVM-exception", true),
            ("", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(rules().allows(expression), allowed, "{expression}");
        }
    }

    #[test]
    fn every_rule_can_fail() {
        let package = |name: &str, license: Option<&str>, source: Option<&str>| Metadata {
            packages: vec![Package {
                name: name.into(),
                version: "1.0.0".into(),
                license: license.map(Into::into),
                license_file: None,
                source: source.map(Into::into),
            }],
        };
        for (metadata, complaint) in [
            (package("left-pad", Some("MIT"), None), "left-pad 1.0.0: banned: no"),
            (package("a", Some("GPL-3.0"), None), "a 1.0.0: licence 'GPL-3.0' is not allowed"),
            (package("a", None, None), "a 1.0.0: no licence"),
            (package("a", Some("MIT"), Some("git+https://x")), "a 1.0.0: comes from git+https://x"),
        ] {
            assert_eq!(rules().check(&metadata), [complaint]);
        }
        let good = package("a", Some("MIT"), Some("registry+https://good"));
        assert_eq!(rules().check(&good), Vec::<String>::new());
    }
}
