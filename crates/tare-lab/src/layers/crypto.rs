//! Masks a CPU feature through the environment variable of OpenSSL and BoringSSL.

use tare_io::DurationNs;
use tare_model::layers::{CryptoSpec, LayerFacts, Mask};
use tare_model::samples::{Proof, Sent};

use super::{LayerKind, LayerProof, ProofContext};
use crate::lab::server::Server;
use crate::launch::Launched;
use crate::launch::hop::Hop;
use crate::machine::commands::run;
use crate::machine::processes;
use tare_model::Failure;

/// Two bit masks: CPUID leaf 1 and, after a colon, leaf 7.
const VARIABLE: &str = "OPENSSL_ia32cap";

const TIMEOUT: DurationNs = DurationNs::from_secs(5);

fn bits(mask: Mask) -> &'static str {
    match mask {
        Mask::NoIfma => ":~0x200000",
        // VAES and VPCLMULQDQ.
        Mask::NoVaes => ":~0x60000000000",
        // AES-NI and PCLMULQDQ; VAES and VPCLMULQDQ.
        Mask::NoAes => "~0x200000200000000:~0x60000000000",
    }
}

/// Whether the CPU has the feature to be masked.
fn has(flags: &str, flag: &str) -> bool {
    let mut lines = flags.lines().filter(|line| line.starts_with("flags"));
    lines.next().is_some_and(|line| line.split_whitespace().any(|word| word == flag))
}

impl LayerKind for CryptoSpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok(format!("{VARIABLE}={} for its processes", bits(self.crypto)))
    }

    fn check_machine(&self) -> Result<(), Failure> {
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flag = self.crypto.flag();
        match has(&flags, flag) {
            true => Ok(()),
            false => Err(Failure::environment(format!(
                "{}: this CPU has no {flag}, so with and without are the same (a null experiment)",
                self.name()
            ))),
        }
    }

    fn env(&self) -> Vec<(String, String)> {
        vec![(VARIABLE.into(), bits(self.crypto).into())]
    }

    fn begin_proof(
        &self,
        launched: &Launched,
        _: &[&Hop],
        _: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, Failure> {
        let wanted = format!("{VARIABLE}={}", bits(self.crypto));
        let pids = launched.meter().processes();
        let environments: Vec<Environment> =
            pids.iter().map(|pid| Environment::read(*pid, &wanted)).collect();
        let library = library_heeds(&wanted);
        Ok(Some(Box::new(CryptoProof { name: self.name(), environments, library })))
    }
}

/// Whether a process's environment contains the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Environment {
    Masked,
    Unmasked,
    /// Overwritten by the process, as nginx does to set its process title.
    Overwritten,
}

impl Environment {
    fn read(pid: u32, wanted: &str) -> Self {
        let entries = processes::environment(pid);
        match entries.iter().any(|entry| entry == wanted) {
            true => Self::Masked,
            false if entries.iter().any(|entry| entry.starts_with("PATH=")) => Self::Unmasked,
            false => Self::Overwritten,
        }
    }
}

/// Whether the mask changes the CPU that this machine's libcrypto sees; `None` if openssl cannot be
/// run.
fn library_heeds(wanted: &str) -> Option<bool> {
    let ask = |argv: &[&str]| {
        let told = run(argv, TIMEOUT);
        let words = told.out.split_whitespace().find(|word| word.starts_with(VARIABLE));
        words.map(str::to_owned).filter(|_| told.worked)
    };
    let openssl = ["openssl", "version", "-c"];
    let (with, without) = (ask(&[&["env", wanted], &openssl[..]].concat())?, ask(&openssl)?);
    Some(with != without)
}

#[derive(Debug)]
struct CryptoProof {
    name: String,
    environments: Vec<Environment>,
    library: Option<bool>,
}

impl LayerProof for CryptoProof {
    fn end(self: Box<Self>, _: &Server, _: Sent) -> Proof {
        let Self { name: layer, environments, library } = *self;
        let count = |kind: Environment| environments.iter().filter(|e| **e == kind).count();
        let all = environments.len();
        let (masked, overwritten) = (count(Environment::Masked), count(Environment::Overwritten));
        let mut text =
            format!("{masked} of its {all} processes show {VARIABLE} in their environment");
        if overwritten > 0 {
            text.push_str(&format!(", {overwritten} have written over theirs"));
        }
        text.push_str(match library {
            Some(true) => "; libcrypto sees the CPU without that feature",
            Some(false) => "; libcrypto sees the same CPU with it as without",
            None => "; openssl is not installed to be asked",
        });
        // If processes have overwritten their environment, libcrypto's answer counts.
        let is_shown = masked == all || (masked + overwritten == all && library == Some(true));
        Proof { layer, held: all > 0 && is_shown && library != Some(false), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_a_whole_word_of_the_flags() {
        let cpu = "processor\t: 0\nflags\t\t: fpu aes avx512ifma\nbugs\t: x\n";
        assert!(has(cpu, "avx512ifma") && has(cpu, "aes"));
        assert!(!has(cpu, "avx512") && !has("", "aes"));
    }
}
