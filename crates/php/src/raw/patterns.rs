//! Regular expressions that a child has compiled, for the process that it is a copy of
//! (`shim/patterns.c`).

unsafe extern "C" {
    fn maitred_php_patterns_share();
    fn maitred_php_patterns_tell();
    fn maitred_php_patterns_learn();
}

/// Creates the memory for the next child's regular expressions, before the fork.
pub fn share_patterns() {
    // SAFETY: it makes a mapping, and looks at numbers of an engine that has one thread, which is
    // this one: a process that runs PHP has no other.
    unsafe { maitred_php_patterns_share() }
}

/// In that child: lists the expressions that it has compiled so far.
pub fn tell_patterns() {
    // SAFETY: as for `share_patterns`; what it writes to was mapped before the fork, and is there
    // as long as the child.
    unsafe { maitred_php_patterns_tell() }
}

/// After the child's exit: compiles its expressions, so that every later copy has them. While a
/// script runs.
pub fn learn_patterns() {
    // SAFETY: as for `share_patterns`. What the child has written is checked before it is used, and
    // no longjmp leaves the call.
    unsafe { maitred_php_patterns_learn() }
}
