//! The kinds of objects that tare knows.

macro_rules! kinds {
    ($($name:ident: $group:literal, $version:literal, $plural:literal, $within:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind { $($name,)* }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub fn group(self) -> &'static str {
                match self { $(Self::$name => $group,)* }
            }

            pub(crate) fn version(self) -> &'static str {
                match self { $(Self::$name => $version,)* }
            }

            /// The plural name, as in RBAC rules.
            pub fn plural(self) -> &'static str {
                match self { $(Self::$name => $plural,)* }
            }

            /// Whether such objects belong to a namespace rather than the whole cluster.
            pub fn is_namespaced(self) -> bool {
                match self { $(Self::$name => $within,)* }
            }
        }
    };
}

kinds! {
    Namespace: "", "v1", "namespaces", false;
    Node: "", "v1", "nodes", false;
    Pod: "", "v1", "pods", true;
    Service: "", "v1", "services", true;
    Event: "", "v1", "events", true;
    ServiceAccount: "", "v1", "serviceaccounts", true;
    ResourceQuota: "", "v1", "resourcequotas", true;
    Deployment: "apps", "v1", "deployments", true;
    StatefulSet: "apps", "v1", "statefulsets", true;
    Job: "batch", "v1", "jobs", true;
    Lease: "coordination.k8s.io", "v1", "leases", true;
    Ingress: "networking.k8s.io", "v1", "ingresses", true;
    Gateway: "gateway.networking.k8s.io", "v1", "gateways", true;
    HTTPRoute: "gateway.networking.k8s.io", "v1", "httproutes", true;
    RuntimeClass: "node.k8s.io", "v1", "runtimeclasses", false;
    PeerAuthentication: "security.istio.io", "v1", "peerauthentications", true;
    DestinationRule: "networking.istio.io", "v1", "destinationrules", true;
    SelfSubjectAccessReview: "authorization.k8s.io", "v1", "selfsubjectaccessreviews", false;
}

impl Kind {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }
}
