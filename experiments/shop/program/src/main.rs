//! Runs one service of the shop, prints the manifests that deploy it, or visits it.
//!
//!   tare-shop
//!       runs the service that SHOP_NAME, SHOP_CLUSTER, SHOP_LISTEN and SHOP_CALLS describe
//!   tare-shop manifest CLUSTER IMAGE
//!       prints the manifests for cluster 1 or 2, or for all services in one cluster (0)
//!   tare-shop visit HOST:PORT [TIMES] [--split] [--mtls[=NAMESPACE]]
//!       visits the shop; all services must answer, each in its cluster (--split), called over
//!       mutual TLS by their callers' accounts in NAMESPACE (--mtls; default: shop)
//!   tare-shop ask HOST:PORT PATH
//!       prints a service's reply to a path such as /counts or /ready

#![forbid(unsafe_code)]

use std::net::TcpListener;
use std::process::ExitCode;

use tare_shop::visit::{Wanted, visit};
use tare_shop::{Callee, Client, Settings, graph, serve};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tare-shop: {why}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let settings = Settings::read(|key| std::env::var(key).ok())?;
            let listener = TcpListener::bind(settings.listen)
                .map_err(|error| format!("{}: {error}", settings.listen))?;
            Err(serve(&listener, settings).to_string())
        }
        ["manifest", cluster @ ("0" | "1" | "2"), image] => {
            print!("{}", graph::manifest(cluster.parse().unwrap_or(0), image));
            Ok(())
        }
        ["visit", host, ref more @ ..] => {
            let mut wanted = Wanted::default();
            let mut times = 1;
            for word in more {
                match (word.split_once('='), *word, word.parse()) {
                    (_, "--split", _) => wanted.split = true,
                    (_, "--mtls", _) => wanted.mtls = Some("shop"),
                    (Some(("--mtls", space)), ..) => wanted.mtls = Some(space),
                    (.., Ok(number @ 1..=1_000_000)) => times = number,
                    _ => {
                        return Err(format!(
                            "{word:?}: --split, --mtls[=NAMESPACE] or a number of visits"
                        ));
                    }
                }
            }
            visit(host, times, wanted)?;
            println!("all eleven services answered, {times} times");
            Ok(())
        }
        ["ask", host, path] => {
            let callee = Callee { name: host.to_owned(), host: host.to_owned() };
            print!("{}", Client::default().get(&callee, path)?);
            Ok(())
        }
        _ => {
            Err("write nothing, or: manifest 0|1|2 IMAGE, visit HOST:PORT, ask HOST:PORT PATH"
                .into())
        }
    }
}
