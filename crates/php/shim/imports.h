/* Functions of the C library that one loaded library is to find elsewhere. */
#ifndef MAITRED_IMPORTS_H
#define MAITRED_IMPORTS_H

#include <stdbool.h>

/*
 * Has the library that contains the address `inside` call `function` for each function of `names`,
 * which ends with NULL. False if it imports none of them, or finds one of them elsewhere than this
 * program does: then all of them stay, unless the system refuses to make one of several words
 * writable. For a process with one thread.
 */
bool maitred_replace_import(const void *inside, const char *const *names, void *function);

#endif
