//! The command line of QEMU: plain machines, and confidential ones as their vendors document them.

use std::path::Path;

use tare_model::places::Confidential;

/// A machine with all settings resolved.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    pub program: &'a Path,
    /// Run by KVM; otherwise emulated.
    pub kvm: bool,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub kernel: &'a Path,
    pub initramfs: &'a Path,
    pub append: &'a str,
    /// File for the kernel's console output.
    pub console: &'a Path,
    pub tap: &'a str,
    /// Script that puts the tap on the bridge.
    pub tap_script: &'a Path,
    pub mac: &'a str,
    pub confidential: Option<Confidential>,
    pub firmware: Option<&'a Path>,
}

/// The id of QEMU's object that makes a guest confidential.
const GUARD: &str = "tare0";

impl Machine<'_> {
    /// Returns the command line. QEMU connects its standard input and output to the agent.
    pub fn argv(&self) -> Vec<String> {
        let mut argv: Vec<String> = vec![self.program.display().to_string()];
        let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
        let mib = self.memory_bytes >> 20;
        let accel = if self.kvm { "kvm" } else { "tcg" };
        add(&["-accel", accel, "-cpu", self.cpu()]);
        add(&["-machine", &self.machine()]);
        for object in self.objects() {
            add(&["-object", &object]);
        }
        add(&["-m", &format!("{mib}M"), "-smp", &self.cpus.to_string()]);
        add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        if let Some(firmware) = self.firmware {
            add(&["-bios", &firmware.display().to_string()]);
        }
        add(&["-kernel", &self.kernel.display().to_string()]);
        add(&["-initrd", &self.initramfs.display().to_string()]);
        add(&["-append", self.append]);
        add(&["-serial", &format!("file:{}", self.console.display())]);
        // Without these options devices cannot access a confidential guest's memory.
        let shared = match self.confidential {
            Some(_) => ",disable-legacy=on,iommu_platform=true",
            None => "",
        };
        add(&["-chardev", "stdio,id=agent,signal=off"]);
        add(&["-device", &format!("virtio-serial-pci{shared}")]);
        add(&["-device", "virtserialport,chardev=agent,name=tare.agent"]);
        add(&[
            "-netdev",
            &format!(
                "tap,id=net0,ifname={},script={},downscript=no",
                self.tap,
                self.tap_script.display()
            ),
        ]);
        let nic = format!("virtio-net-pci,netdev=net0,mac={},romfile={shared}", self.mac);
        add(&["-device", &nic]);
        argv
    }

    fn cpu(&self) -> &'static str {
        match (self.kvm, self.confidential) {
            (_, Some(Confidential::SevSnp)) => "EPYC-v4",
            (_, Some(Confidential::Tdx)) => "host,pmu=off",
            (true, None) => "host",
            (false, None) => "max",
        }
    }

    fn machine(&self) -> String {
        match self.confidential {
            None => "q35".into(),
            Some(Confidential::Tdx) => format!(
                "q35,kernel-irqchip=split,hpet=off,confidential-guest-support={GUARD},\
                 memory-backend=ram0"
            ),
            Some(Confidential::SevSnp) => {
                format!("q35,vmport=off,confidential-guest-support={GUARD},memory-backend=ram0")
            }
        }
    }

    fn objects(&self) -> Vec<String> {
        let mib = self.memory_bytes >> 20;
        match self.confidential {
            None => Vec::new(),
            Some(Confidential::Tdx) => vec![
                format!("memory-backend-ram,id=ram0,size={mib}M"),
                format!("{{\"qom-type\":\"tdx-guest\",\"id\":\"{GUARD}\"}}"),
            ],
            // The encryption bit of all processors that have SNP is 51.
            Some(Confidential::SevSnp) => vec![
                format!("memory-backend-memfd,id=ram0,size={mib}M,share=true,prealloc=false"),
                format!(
                    "sev-snp-guest,id={GUARD},policy=0x30000,cbitpos=51,reduced-phys-bits=1,\
                     kernel-hashes=on"
                ),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(confidential: Option<Confidential>, kvm: bool) -> String {
        let machine = Machine {
            program: Path::new("/usr/bin/qemu-system-x86_64"),
            kvm,
            cpus: 2,
            memory_bytes: 1 << 30,
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            append: "panic=-1",
            console: Path::new("/c"),
            tap: "tare-t7-3",
            tap_script: Path::new("/up"),
            mac: "02:00:00:00:00:01",
            confidential,
            firmware: confidential.map(|_| Path::new("/OVMF.fd")),
        };
        machine.argv().join(" ")
    }

    #[test]
    fn a_plain_machine_speaks_on_its_standard_streams() {
        let text = line(None, false);
        assert!(
            text.starts_with(
                "/usr/bin/qemu-system-x86_64 -accel tcg -cpu max -machine q35 -m 1024M -smp 2"
            ),
            "{text}"
        );
        assert!(text.contains("-chardev stdio,id=agent,signal=off -device virtio-serial-pci "));
        assert!(text.contains("ifname=tare-t7-3,script=/up,downscript=no"), "{text}");
        assert!(!text.contains("-bios") && !text.contains("confidential"), "{text}");
        assert!(line(None, true).contains("-accel kvm -cpu host "));
    }

    /// Follows docs/system/i386/tdx.rst of QEMU 10.1 and Intel's guides.
    #[test]
    fn a_tdx_machine_is_asked_for_as_documented() {
        let text = line(Some(Confidential::Tdx), true);
        for part in [
            "-accel kvm -cpu host,pmu=off",
            "-machine q35,kernel-irqchip=split,hpet=off,confidential-guest-support=tare0,memory-backend=ram0",
            "-object memory-backend-ram,id=ram0,size=1024M",
            "-object {\"qom-type\":\"tdx-guest\",\"id\":\"tare0\"}",
            "-bios /OVMF.fd",
            "virtio-net-pci,netdev=net0,mac=02:00:00:00:00:01,romfile=,disable-legacy=on,iommu_platform=true",
            "virtio-serial-pci,disable-legacy=on,iommu_platform=true",
        ] {
            assert!(text.contains(part), "{part}\nin {text}");
        }
    }

    /// Follows docs/system/i386/amd-memory-encryption.rst of QEMU 9.1.
    #[test]
    fn an_snp_machine_is_asked_for_as_documented() {
        let text = line(Some(Confidential::SevSnp), true);
        for part in [
            "-cpu EPYC-v4",
            "-machine q35,vmport=off,confidential-guest-support=tare0,memory-backend=ram0",
            "-object memory-backend-memfd,id=ram0,size=1024M,share=true,prealloc=false",
            "-object sev-snp-guest,id=tare0,policy=0x30000,cbitpos=51,reduced-phys-bits=1,kernel-hashes=on",
            "-bios /OVMF.fd",
            "romfile=,disable-legacy=on,iommu_platform=true",
        ] {
            assert!(text.contains(part), "{part}\nin {text}");
        }
    }
}
