//! How many workers each pool may have: processors, memory, `process.max`.

pub mod auto;
pub mod boot_order;
pub mod memory_reader;
pub mod memory_reads;
pub mod private_memory;
pub mod process_max;
pub mod spare_zygotes;
