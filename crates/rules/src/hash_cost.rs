//! What it may cost to verify a password against a hash. The writer of the hash sets its cost, and
//! the server pays it: without a limit, one line of a users file takes all memory, or a processor
//! for days.

use argon2::{Params, PasswordHash};

use crate::crypt_hash;

/// Highest cost of a bcrypt hash, the logarithm of its rounds: about 2 s of a processor.
pub const MAX_BCRYPT_COST: u32 = 15;

/// Largest memory of an argon2 hash in KiB.
pub const MAX_ARGON2_MEMORY: u32 = 256 * 1024;

/// Most memory that all passes of an argon2 hash write, in KiB: about 1 s of a processor.
pub const MAX_ARGON2_WRITES: u64 = 1024 * 1024;

/// Most lanes of an argon2 hash.
pub const MAX_ARGON2_LANES: u32 = 16;

/// Most rounds of a SHA-crypt hash: about 1 s of a processor.
pub const MAX_SHA_CRYPT_ROUNDS: usize = 1_000_000;

/// What is too much about a hash, as the end of a sentence, if its cost is beyond the limits. A
/// hash that is not complete costs nothing.
pub fn excess(hash: &str) -> Option<String> {
    if hash.starts_with("$argon2") {
        return excess_of_argon2(&PasswordHash::new(hash).ok()?);
    }
    if let Ok(parts) = hash.parse::<bcrypt::HashParts>() {
        let cost = parts.get_cost();
        return (cost > MAX_BCRYPT_COST).then(|| {
            format!("has a bcrypt hash of cost {cost}; expected at most {MAX_BCRYPT_COST}")
        });
    }
    let rounds = crypt_hash::rounds(hash)?;
    (rounds > MAX_SHA_CRYPT_ROUNDS).then(|| {
        format!("has a SHA-crypt hash of {rounds} rounds; expected at most {MAX_SHA_CRYPT_ROUNDS}")
    })
}

fn excess_of_argon2(hash: &PasswordHash<'_>) -> Option<String> {
    // A parameter that is left out has its default value.
    let parameter = |name: &str, default| hash.params.get_decimal(name).unwrap_or(default);
    let memory = parameter("m", Params::DEFAULT_M_COST);
    let passes = parameter("t", Params::DEFAULT_T_COST);
    let lanes = parameter("p", Params::DEFAULT_P_COST);
    if memory > MAX_ARGON2_MEMORY {
        return Some(format!(
            "has an argon2 hash with m={memory}; expected at most {MAX_ARGON2_MEMORY} KiB"
        ));
    }
    if lanes > MAX_ARGON2_LANES {
        return Some(format!(
            "has an argon2 hash with p={lanes}; expected at most {MAX_ARGON2_LANES}"
        ));
    }
    let written = u64::from(memory) * u64::from(passes);
    (written > MAX_ARGON2_WRITES).then(|| {
        format!(
            "has an argon2 hash with m={memory} and t={passes}; expected a product of at most \
             {MAX_ARGON2_WRITES} KiB"
        )
    })
}
