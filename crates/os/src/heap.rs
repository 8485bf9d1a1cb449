//! The heap of the C library: memory in use, and returning the rest to the system. Freed memory
//! below a block in use stays with the process otherwise.

/// Bytes in use, of all threads.
#[cfg(target_env = "gnu")]
pub fn in_use() -> u64 {
    // SAFETY: the function takes nothing, and locks each arena while it counts it.
    let info = unsafe { libc::mallinfo2() };
    let (small, mapped) = (info.uordblks as u64, info.hblkhd as u64);
    small.saturating_add(mapped)
}

/// Bytes in use; other C libraries do not report it, and return memory by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn in_use() -> u64 {
    u64::MAX
}

/// Returns unused pages to the system. May take milliseconds, in which threads that allocate wait.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function locks each arena while it looks through it, and touches free memory
    // only.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_in_use_until_it_is_freed() {
        const MANY: usize = 4096;
        const EACH: usize = 4096;
        let before = in_use();
        let pieces: Vec<Vec<u8>> = (0..MANY).map(|_| vec![1; EACH]).collect();
        let allocated = (MANY * EACH) as u64;
        assert!(in_use() >= before + allocated / 2);
        drop(pieces);
        give_back();
        assert!(in_use() < before + allocated / 2);
    }
}
