//! Argon2 hashes of passwords (RFC 9106), in the PHC string format: `$argon2id$v=19$m=…,t=…,p=…$…`.

use argon2::password_hash::{self, Error, Output};
use argon2::{Algorithm, Argon2, Block, Params, PasswordHash, Version};

/// Longest salt in bytes, decoded.
const MAX_SALT: usize = 64;

/// Whether a password matches a hash. Without memory for it no password does.
pub fn matches(password: &[u8], hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| {
        // Outputs are compared in constant time.
        digest(password, &hash).is_ok_and(|digest| hash.hash == Some(digest))
    })
}

fn digest(password: &[u8], hash: &PasswordHash<'_>) -> password_hash::Result<Output> {
    let algorithm = Algorithm::try_from(hash.algorithm)?;
    let version = hash.version.map(Version::try_from).transpose()?.unwrap_or_default();
    let params = Params::try_from(hash)?;
    let mut salt = [0; MAX_SALT];
    let salt = hash.salt.ok_or(Error::Password)?.decode_b64(&mut salt)?;
    let length = params.output_len().ok_or(Error::Password)?;
    // `Argon2::hash_password_into` ends the process when there is no memory.
    let mut memory: Vec<Block> = Vec::new();
    memory.try_reserve_exact(params.block_count()).map_err(|_| Error::Crypto)?;
    memory.resize(params.block_count(), Block::default());
    let argon2 = Argon2::new(algorithm, version, params);
    Output::init_with(length, |out| {
        Ok(argon2.hash_password_into_with_memory(password, salt, out, &mut memory)?)
    })
}
