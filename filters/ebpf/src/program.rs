//! The bytecode: from its object file to machine code.

use std::collections::HashSet;
use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::Ordering;

use aya_obj::Object;
use rbpf::EbpfVmMbuff;

use crate::shared::{PREFIX, PREFIX_BYTES, SEAT, SEAT_BYTES};

/// How the program names its maps, and the numbers that stand for them in its look-ups.
const MAPS: [(&str, i32); 2] = [("prefixes", 1), ("seats", 2)];
/// bpf_map_lookup_elem.
const LOOKUP: u32 = 1;

pub struct Program {
    vm: EbpfVmMbuff<'static>,
}

impl Program {
    /// Loads, verifies, tries and compiles it. [`PREFIX`] must be set.
    pub fn load(path: &Path, prefix: &[u8]) -> Result<Self, String> {
        let in_file = |why: String| format!("{}: {why}", path.display());
        let bytes = std::fs::read(path).map_err(|error| in_file(error.to_string()))?;
        let code = bytecode(&bytes).map_err(in_file)?;
        let mut vm = EbpfVmMbuff::new(None).map_err(|error| in_file(error.to_string()))?;
        // One program a process, until its end.
        vm.set_program(code.leak())
            .map_err(|error| in_file(format!("the verifier refused it: {error}")))?;
        vm.register_helper(LOOKUP, lookup).map_err(|error| in_file(error.to_string()))?;
        let mut program = Self { vm };
        program.try_out(prefix).map_err(|why| in_file(format!("a trial run failed: {why}")))?;
        program.vm.jit_compile().map_err(|error| in_file(format!("cannot compile it: {error}")))?;
        Ok(program)
    }

    /// Runs it on URLs of all sorts with every access checked: machine code checks none.
    fn try_out(&mut self, own_prefix: &[u8]) -> Result<(), String> {
        let seat = Box::leak(Box::new([0_u64; SEAT_BYTES / 8]));
        let at = seat.as_ptr() as usize;
        let prefix = PREFIX.load(Ordering::Relaxed);
        self.vm.register_allowed_memory(prefix as u64..(prefix + PREFIX_BYTES) as u64);
        self.vm.register_allowed_memory(at as u64..(at + SEAT_BYTES) as u64);
        SEAT.store(at, Ordering::Relaxed);
        // Each length once as it comes, and once beginning as far as possible like the prefix.
        let lengths = [0, 1, 6, 127, 128, 5000];
        let tried = lengths.into_iter().flat_map(|n| [(n, false), (n, true)]).try_for_each(|of| {
            let mut url = vec![b'/'; of.0];
            let like = if of.1 { own_prefix.len().min(of.0) } else { 0 };
            url[..like].copy_from_slice(&own_prefix[..like]);
            match self.vm.execute_program(&url, &context(&url)) {
                Ok(0 | 1) => Ok(()),
                Ok(other) => Err(format!("it answers {other}; 0 and 1 are answers")),
                Err(error) => Err(error.to_string()),
            }
        });
        SEAT.store(0, Ordering::Relaxed);
        tried
    }

    /// 1 accepts, 0 refuses, everything else is a failure.
    pub fn run(&self, url: &CStr) -> u64 {
        let url = url.to_bytes();
        let mut context = context(url);
        // SAFETY: the program keeps neither pointer. That it stays within them is its author's word:
        // rbpf verifies the code's form, and the trial checked the accesses of its own URLs only.
        let answer = unsafe {
            let context: &'static mut [u8] =
                std::slice::from_raw_parts_mut(context.as_mut_ptr(), context.len());
            self.vm.execute_program_jit(&mut [], context)
        };
        answer.unwrap_or(u64::MAX)
    }
}

/// What the program is given: where a URL begins and where it ends.
fn context(url: &[u8]) -> [u8; 16] {
    let start = url.as_ptr() as u64;
    let mut context = [0; 16];
    context[..8].copy_from_slice(&start.to_ne_bytes());
    context[8..].copy_from_slice(&(start + url.len() as u64).to_ne_bytes());
    context
}

/// The instructions of the one program in an object file, its maps put in.
fn bytecode(file: &[u8]) -> Result<Vec<u8>, String> {
    let mut object = Object::parse(file).map_err(|error| format!("not an eBPF object: {error}"))?;
    let maps = std::mem::take(&mut object.maps);
    let known = MAPS.into_iter().map(|(name, number)| match maps.get(name) {
        Some(map) => Ok((name, number, map)),
        None => Err(format!("it has no map '{name}'")),
    });
    let known: Vec<_> = known.collect::<Result<_, _>>()?;
    object
        .relocate_maps(known.into_iter(), &HashSet::new())
        .map_err(|error| format!("its maps: {error}"))?;
    let program = object.programs.values().next().ok_or("it holds no program")?;
    let function = object.functions.get(&program.function_key()).ok_or("it holds no code")?;
    let instructions = function.instructions.iter();
    Ok(instructions.flat_map(bytes_of).collect())
}

/// An instruction as the eight bytes that it is.
fn bytes_of(instruction: &aya_obj::generated::bpf_insn) -> [u8; 8] {
    let [off0, off1] = instruction.off.to_le_bytes();
    let [imm0, imm1, imm2, imm3] = instruction.imm.to_le_bytes();
    let registers = instruction.dst_reg() | instruction.src_reg() << 4;
    // Who reads the code here takes a number for a number, whatever it stands for.
    let registers = if instruction.code == LOAD_IMMEDIATE { registers & 0x0f } else { registers };
    [instruction.code, registers, off0, off1, imm0, imm1, imm2, imm3]
}

/// A 64-bit constant; its source register says what the constant stands for.
const LOAD_IMMEDIATE: u8 = 0x18;

/// The helper that finds a map's value. Maps here have one each.
fn lookup(map: u64, key: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: the program gives the address of a key, as helpers of eBPF are called. Nobody checks
    // that: it is as trusted as any library that is loaded.
    let key = unsafe { (key as *const u32).read_unaligned() };
    let found = match map {
        1 => &PREFIX,
        2 => &SEAT,
        _ => return 0,
    };
    if key == 0 { found.load(Ordering::Relaxed) as u64 } else { 0 }
}
