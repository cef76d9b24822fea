//! The shop's call graph, the cluster of each service, and the manifests that deploy them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    pub name: &'static str,
    /// 1 or 2, when the shop is split over two clusters.
    pub cluster: u32,
    /// Services that it calls, one after another in this order.
    pub calls: &'static [&'static str],
    /// Requests that it gets per visit.
    pub share: u64,
}

const fn service(
    name: &'static str,
    cluster: u32,
    share: u64,
    calls: &'static [&'static str],
) -> Service {
    Service { name, cluster, calls, share }
}

pub const SHOP: [Service; 11] = [
    service(
        "frontend",
        1,
        1,
        &["productcatalog", "currency", "cart", "recommendation", "shipping", "checkout", "ad"],
    ),
    service(
        "checkout",
        1,
        1,
        &["cart", "productcatalog", "currency", "shipping", "payment", "email"],
    ),
    service("recommendation", 1, 1, &["productcatalog"]),
    service("cart", 1, 2, &["redis"]),
    service("redis", 1, 2, &[]),
    service("productcatalog", 2, 3, &[]),
    service("currency", 2, 2, &[]),
    service("shipping", 2, 2, &[]),
    service("payment", 2, 1, &[]),
    service("email", 2, 1, &[]),
    service("ad", 2, 1, &[]),
];

/// Port that every pod listens on; its Service forwards port 80 to it.
const PORT: u16 = 8080;

const DEPLOYMENT: &str = r#"---
apiVersion: v1
kind: ServiceAccount
metadata: {name: @NAME@}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: @NAME@, labels: {app: @NAME@}}
spec:
  selector: {matchLabels: {app: @NAME@}}
  template:
    metadata: {labels: {app: @NAME@}}
    spec:
      serviceAccountName: @NAME@
      terminationGracePeriodSeconds: 1
      containers:
        - name: shop
          image: "@IMAGE@"
          imagePullPolicy: IfNotPresent
          env:
            - {name: SHOP_NAME, value: "@NAME@"}
            - {name: SHOP_CLUSTER, value: "@CLUSTER@"}
            - {name: SHOP_LISTEN, value: "0.0.0.0:@PORT@"}
            - {name: SHOP_CALLS, value: "@CALLS@"}
          ports: [{containerPort: @PORT@}]
          readinessProbe: {httpGet: {path: /ready, port: @PORT@}, periodSeconds: 1}
"#;

const SERVICE: &str = "---
apiVersion: v1
kind: Service
metadata: {name: @NAME@}
spec: {selector: {app: @NAME@}, ports: [{name: http, port: 80, targetPort: @PORT@}]}
";

/// Returns the Deployments of one cluster, or all (0), and the Services of the whole shop.
pub fn manifest(cluster: u32, image: &str) -> String {
    let here = |service: &&Service| cluster == 0 || service.cluster == cluster;
    let mut text = String::new();
    // Each cluster gets all Services, wherever the pods are, and before any pod calls them.
    for Service { name, .. } in &SHOP {
        text += &SERVICE.replace("@NAME@", name).replace("@PORT@", &PORT.to_string());
    }
    for service in SHOP.iter().filter(here) {
        let Service { name, calls, .. } = service;
        let calls: Vec<String> =
            calls.iter().map(|callee| format!("{callee}=http://{callee}:80")).collect();
        let calls = calls.join(",");
        text += &DEPLOYMENT
            .replace("@NAME@", name)
            .replace("@IMAGE@", image)
            .replace("@CLUSTER@", &cluster.to_string())
            .replace("@PORT@", &PORT.to_string())
            .replace("@CALLS@", &calls);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service_named(name: &str) -> &'static Service {
        SHOP.iter().find(|service| service.name == name).unwrap()
    }

    /// Returns the requests of one visit, and how many of them go to the other cluster.
    fn visit(service: &Service) -> (u64, u64) {
        service.calls.iter().fold((1, 0), |(all, across), callee| {
            let callee = service_named(callee);
            let (more, further) = visit(callee);
            (all + more, across + further + u64::from(callee.cluster != service.cluster))
        })
    }

    #[test]
    fn a_visit_is_seventeen_requests_of_which_ten_go_across() {
        assert_eq!(visit(service_named("frontend")), (17, 10));
        assert_eq!(SHOP.iter().map(|service| service.share).sum::<u64>(), 17);
        for service in &SHOP {
            let callers = SHOP.iter().map(|caller| {
                let times = caller.calls.iter().filter(|name| **name == service.name).count();
                times as u64 * caller.share
            });
            let expected = if service.name == "frontend" { 1 } else { callers.sum() };
            assert_eq!(service.share, expected, "{}", service.name);
        }
    }

    #[test]
    fn a_manifest_has_the_pods_of_its_cluster_and_the_names_of_all() {
        let one = manifest(1, "shop:1");
        assert_eq!(one.matches("kind: Deployment").count(), 5);
        assert_eq!(one.matches("kind: Service\n").count(), 11);
        assert!(one.contains("value: \"redis=http://redis:80\""));
        assert_eq!(manifest(2, "shop:1").matches("kind: Deployment").count(), 6);
        assert_eq!(manifest(0, "shop:1").matches("kind: Deployment").count(), 11);
    }
}
