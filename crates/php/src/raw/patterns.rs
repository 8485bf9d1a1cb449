//! Regular expressions that a child has compiled, for the process that it is a copy of
//! (`shim/patterns.c`).

unsafe extern "C" {
    fn maitred_php_patterns_share();
    fn maitred_php_patterns_tell();
    fn maitred_php_patterns_learn();
}

/// Gets ready to hear of the next child's regular expressions, before it is forked.
pub fn share_patterns() {
    // SAFETY: it makes a mapping, and looks at numbers of an engine that has one thread, which is this
    // one: a process that runs PHP has no other.
    unsafe { maitred_php_patterns_share() }
}

/// In that child: tells of those that it has compiled by now.
pub fn tell_patterns() {
    // SAFETY: as for `share_patterns`; what it writes to was mapped before the fork, and is there as long
    // as the child.
    unsafe { maitred_php_patterns_tell() }
}

/// When the child has ended: compiles what it has compiled, which every copy from now on has then. While
/// a script runs.
pub fn learn_patterns() {
    // SAFETY: as for `share_patterns`. What the child has written is checked before it is used, and no
    // longjmp leaves the call.
    unsafe { maitred_php_patterns_learn() }
}
