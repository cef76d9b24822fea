//! Sources of a variant's load: one client, or several that make it together.

use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::places::PlaceSpec;

/// Location of one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a plan has a handful of them")]
pub enum ClientSpec {
    /// The server's own place: the same container, or the same VM.
    SameAsServer,
    Place(PlaceSpec),
}

impl ClientSpec {
    pub fn on_host() -> Self {
        Self::Place(PlaceSpec::host())
    }

    pub fn name(&self) -> String {
        match self {
            Self::SameAsServer => "same as server".into(),
            Self::Place(place) => place.name(),
        }
    }

    /// The client's own place; `None` if it runs where the server does.
    pub fn place(&self) -> Option<&PlaceSpec> {
        match self {
            Self::SameAsServer => None,
            Self::Place(place) => Some(place),
        }
    }
}

/// The clients that share one variant's load; at least one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<ClientSpec>", into = "Vec<ClientSpec>")]
pub struct Clients(Vec<ClientSpec>);

/// Most clients of a variant: each has a process, a stream and threads of its own.
pub const CLIENTS_MAX: usize = 64;

impl Clients {
    pub fn one(client: ClientSpec) -> Self {
        Self(vec![client])
    }

    /// A single client: this process makes the load.
    pub fn on_host() -> Self {
        Self::one(ClientSpec::on_host())
    }

    pub fn is_on_host(&self) -> bool {
        *self == Self::on_host()
    }

    /// The client, if there is exactly one.
    pub fn single(&self) -> Option<&ClientSpec> {
        match &self.0[..] {
            [client] => Some(client),
            _ => None,
        }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, ClientSpec> {
        self.0.iter()
    }

    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Places of the clients, except of those that run in the server's place.
    pub fn places(&self) -> impl Iterator<Item = &PlaceSpec> {
        self.0.iter().filter_map(ClientSpec::place)
    }

    pub fn has_one_beside_server(&self) -> bool {
        self.0.contains(&ClientSpec::SameAsServer)
    }

    /// A client's name in messages: `client`, or `client 2 of 4`.
    pub fn word(&self, at: usize) -> String {
        match self.len() {
            1 => "client".into(),
            n => format!("client {} of {n}", at + 1),
        }
    }

    /// The clients' names in tables; adjacent equal names are counted, as in `2 × netns`.
    pub fn name(&self) -> String {
        let mut runs: Vec<(String, usize)> = Vec::new();
        for name in self.0.iter().map(ClientSpec::name) {
            match runs.last_mut() {
                Some((last, n)) if *last == name => *n += 1,
                _ => runs.push((name, 1)),
            }
        }
        let words = runs.into_iter().map(|(name, n)| match n {
            1 => name,
            n => format!("{n} × {name}"),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

impl TryFrom<Vec<ClientSpec>> for Clients {
    type Error = Invalid;

    fn try_from(clients: Vec<ClientSpec>) -> Result<Self, Invalid> {
        if !(1..=CLIENTS_MAX).contains(&clients.len()) {
            let n = clients.len();
            return Err(Invalid(format!("{n} clients; a variant has 1 to {CLIENTS_MAX}")));
        }
        let count = |wanted: fn(&ClientSpec) -> bool| clients.iter().filter(|c| wanted(c)).count();
        if count(|client| matches!(client, ClientSpec::Place(PlaceSpec::Host(_)))) > 1 {
            return Err("on the host one client makes all of the load: give it more threads \
                        instead of a second one"
                .into());
        }
        if count(|client| *client == ClientSpec::SameAsServer) > 1 {
            return Err(
                "beside its server one client makes all of the load: give it more threads \
                        instead of a second one"
                    .into(),
            );
        }
        Ok(Self(clients))
    }
}

impl From<Clients> for Vec<ClientSpec> {
    fn from(clients: Clients) -> Self {
        clients.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::NetnsSpec;

    fn netns() -> ClientSpec {
        ClientSpec::Place(PlaceSpec::Netns(NetnsSpec::default()))
    }

    #[test]
    fn clients_are_named_and_counted() {
        let clients = |all: Vec<ClientSpec>| Clients::try_from(all).map_err(|why| why.0);
        let several = clients(vec![netns(), netns(), ClientSpec::on_host()]).unwrap();
        assert_eq!(several.name(), "2 × netns, host");
        assert_eq!((several.word(1), several.single()), ("client 2 of 3".into(), None));
        let one = Clients::on_host();
        assert_eq!((one.name(), one.word(0)), ("host".into(), "client".into()));
        assert_eq!(one.single(), Some(&ClientSpec::on_host()));
        for (bad, part) in [
            (vec![], "0 clients"),
            (vec![netns(); CLIENTS_MAX + 1], "1 to 64"),
            (vec![ClientSpec::on_host(); 2], "more threads"),
            (vec![ClientSpec::SameAsServer; 2], "more threads"),
        ] {
            let why = clients(bad).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
