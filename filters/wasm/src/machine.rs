//! The module, its instance, and what crosses between it and us.

use std::path::Path;

use wasmtime::{
    Config, Engine, Instance, InstanceAllocationStrategy, Memory, Module, PoolingAllocationConfig,
    Store, TypedFunc, WasmParams, WasmResults,
};

/// As much as a module may have. URLs are far shorter.
const MEMORY_BYTES_MAX: usize = 64 << 20;

pub struct Machine {
    store: Store<()>,
    memory: Memory,
    reserve: TypedFunc<u32, u32>,
    filter: TypedFunc<(u32, u32), u32>,
    accepted: TypedFunc<(), u64>,
    refused: TypedFunc<(), u64>,
}

impl Machine {
    /// Loads the module and gives it its prefix.
    pub fn load(path: &Path, prefix: &[u8]) -> Result<Self, String> {
        Self::start(path, prefix).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn start(path: &Path, prefix: &[u8]) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let engine = Engine::new(&config()).map_err(in_one_line)?;
        let module = Module::from_binary(&engine, &bytes).map_err(in_one_line)?;
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).map_err(in_one_line)?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| "it exports no memory".to_owned())?;
        let initialize: TypedFunc<(u32, u32), u32> = function(&instance, &mut store, "initialize")?;
        let mut machine = Self {
            memory,
            reserve: function(&instance, &mut store, "reserve")?,
            filter: function(&instance, &mut store, "filter")?,
            accepted: function(&instance, &mut store, "accepted")?,
            refused: function(&instance, &mut store, "refused")?,
            store,
        };
        let at = machine.copy_in(prefix).ok_or_else(|| "no room in its memory".to_owned())?;
        match initialize.call(&mut machine.store, (at, prefix.len() as u32)) {
            Ok(0) => Ok(machine),
            Ok(_) => Err("it refused the prefix".to_owned()),
            Err(error) => Err(in_one_line(error)),
        }
    }

    /// 1 accepts, 0 refuses; `None` where it trapped or has no memory left.
    pub fn filter(&mut self, url: &[u8]) -> Option<u32> {
        let at = self.copy_in(url)?;
        self.filter.call(&mut self.store, (at, url.len() as u32)).ok()
    }

    pub fn counts(&mut self) -> (u64, u64) {
        let accepted = self.accepted.call(&mut self.store, ()).unwrap_or(0);
        (accepted, self.refused.call(&mut self.store, ()).unwrap_or(0))
    }

    /// The module says where; wasmtime checks that this is inside.
    fn copy_in(&mut self, text: &[u8]) -> Option<u32> {
        let length = u32::try_from(text.len()).ok()?;
        let at = self.reserve.call(&mut self.store, length).ok().filter(|at| *at != 0)?;
        self.memory.write(&mut self.store, at as usize, text).ok()?;
        Some(at)
    }
}

fn config() -> Config {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(1).total_memories(1).total_tables(1);
    pool.max_memory_size(MEMORY_BYTES_MAX);
    let mut config = Config::new();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config.memory_reservation(MEMORY_BYTES_MAX as u64);
    config
}

fn function<P: WasmParams, R: WasmResults>(
    instance: &Instance,
    store: &mut Store<()>,
    name: &str,
) -> Result<TypedFunc<P, R>, String> {
    instance
        .get_typed_func(store, name)
        .map_err(|error| format!("function '{name}': {}", in_one_line(error)))
}

/// wasmtime explains itself over several lines.
fn in_one_line(error: wasmtime::Error) -> String {
    let text = format!("{error:#}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
