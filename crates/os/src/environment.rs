//! Changes of this process's environment while there is one thread.

/// Makes `variables` the whole environment. Call it while there is one thread.
///
/// # Panics
/// Never: invalid names (empty, with `=` or NUL) are left out.
pub fn replace(variables: &[(String, String)]) {
    let fits = |name: &str, value: &str| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    // SAFETY: there is one thread, so no other reads the environment meanwhile.
    unsafe {
        libc::clearenv();
        for (name, value) in variables.iter().filter(|(name, value)| fits(name, value)) {
            std::env::set_var(name, value);
        }
    }
}

/// Removes a variable. Call it while there is one thread.
pub fn remove(name: &str) {
    // SAFETY: there is one thread, so no other reads the environment meanwhile.
    unsafe { std::env::remove_var(name) };
}

/// Sets a variable. Call it while there is one thread. The name must be one, and the value without
/// NUL.
pub fn add(name: &str, value: &str) {
    // SAFETY: there is one thread, so no other reads the environment meanwhile.
    unsafe { std::env::set_var(name, value) };
}
