//! Apache httpd with a configuration made here.

use std::path::{Path, PathBuf};

use tare_io::DurationNs;
use tare_model::servers::HttpdSpec;

use super::ServerKind;
use crate::launch::context::{LaunchContext, page, utf8};
use crate::launch::spec::LaunchSpec;
use crate::launch::spec::{CountPage, CountSource};
use crate::machine::programs;
use tare_model::Failure;

const NAMES: [&str; 2] = ["apache2", "httpd"];
/// Where distributions keep its modules.
const MODULE_FOLDERS: [&str; 4] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
    "/usr/local/apache2/modules",
];
const MODULES: [&str; 6] = ["mpm_event", "authz_core", "dir", "status", "unixd", "log_config"];
const READY_WITHIN: DurationNs = DurationNs::from_secs(10);

/// Returns the server's path, and the folder of its modules.
fn program() -> Result<(PathBuf, &'static str), Failure> {
    let program = programs::need(&NAMES, "apache2-bin")?;
    let folder = MODULE_FOLDERS.into_iter().find(|folder| Path::new(folder).is_dir());
    let folder = folder.ok_or_else(|| {
        Failure::environment(format!("httpd's modules are in none of {MODULE_FOLDERS:?}"))
    })?;
    Ok((program, folder))
}

fn modules(spec: &HttpdSpec) -> impl Iterator<Item = &'static str> {
    MODULES.into_iter().chain(spec.http2.then_some("http2"))
}

/// Loads modules if present: some distributions build some of them in.
fn load_modules(spec: &HttpdSpec, folders: &[&str], may_be: impl Fn(&str) -> bool) -> String {
    let all = folders.iter().flat_map(|folder| {
        modules(spec).map(move |name| (name, format!("{folder}/mod_{name}.so")))
    });
    all.filter(|(_, path)| may_be(path))
        .map(|(name, path)| {
            format!("<IfFile {path}>\nLoadModule {name}_module {path}\n</IfFile>\n")
        })
        .collect()
}

impl ServerKind for HttpdSpec {
    fn describe_elsewhere(&self) -> String {
        "starts the place's httpd".into()
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        let (program, folder) = program()?;
        let modules = modules(self).map(|name| Path::new(folder).join(format!("mod_{name}.so")));
        Ok(std::iter::once(program).chain(modules.filter(|path| path.is_file())).collect())
    }

    fn describe(&self) -> Result<String, Failure> {
        Ok(format!(
            "starts: {} with {} × {} threads, {} bytes per reply, access log {}{}",
            program()?.0.display(),
            self.processes,
            self.threads,
            self.body_bytes,
            if self.access_log { "on" } else { "off" },
            if self.http2 { ", HTTP/2" } else { "" },
        ))
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        let (program, load) = match context.our_programs {
            true => {
                let (program, modules) = program()?;
                (program, load_modules(self, &[modules], |path| Path::new(path).is_file()))
            }
            // In places with their own programs, the server and its modules are looked up there.
            false => ("httpd".into(), load_modules(self, &MODULE_FOLDERS, |_| true)),
        };
        let folder = utf8(context.folder)?.to_owned();
        let (address, status) = (context.address()?, context.status_address()?);
        context.write("html/index.html", &page(self.body_bytes));
        let user = if context.root { "User www-data\nGroup www-data\n" } else { "" };
        let log_file = context.folder.join("access.log");
        let log = match self.access_log {
            true => format!("CustomLog {folder}/access.log \"%h %l %u %t \\\"%r\\\" %>s %b\"\n"),
            false => String::new(),
        };
        // Debian's defaults, except what would disturb a measurement: all processes and threads
        // start at once (none under load), kept connections do not end, and there is no access log
        // unless requested.
        let Self { processes, threads, .. } = self;
        let workers = processes * threads;
        let protocols = if self.http2 { "Protocols h2c http/1.1\n" } else { "" };
        let text = format!(
            "ServerName localhost\nServerRoot {folder}\nPidFile {folder}/httpd.pid\n{load}{user}{protocols}\
             ErrorLog /dev/stderr\nLogLevel error\n{log}Listen {address}\nListen {status}\n\
             ServerLimit {processes}\nStartServers {processes}\nThreadLimit {threads}\n\
             ThreadsPerChild {threads}\nMaxRequestWorkers {workers}\nMinSpareThreads {threads}\n\
             MaxSpareThreads {workers}\nKeepAlive On\nMaxKeepAliveRequests 0\n\
             KeepAliveTimeout 3600\nExtendedStatus On\nDocumentRoot {folder}/html\n\
             <Directory {folder}/html>\nRequire all granted\nFallbackResource /index.html\n\
             </Directory>\n<VirtualHost {status}>\nCustomLog /dev/null %t\n<Location />\n\
             SetHandler server-status\nRequire all granted\n</Location>\n</VirtualHost>\n",
        );
        let config = context.write("httpd.conf", text.as_bytes());
        let argv = [utf8(&program)?, "-d", &folder, "-f", utf8(&config)?, "-DFOREGROUND"];
        let page = CountPage::ApacheAuto;
        let count = CountSource::Page { address: status, path: "/?auto".into(), page };
        Ok(LaunchSpec {
            // httpd's count misses some requests over HTTP/2 (5 of 2,484 with httpd 2.4).
            count: (!self.http2).then_some(count),
            log_files: if self.access_log { vec![log_file] } else { Vec::new() },
            ..context.launch_spec(argv.map(str::to_owned).to_vec(), address, READY_WITHIN)
        })
    }
}
