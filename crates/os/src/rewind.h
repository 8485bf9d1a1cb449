/* What rewind.c, rewind_kept.c and rewind_look.c know of each other. */
#ifndef MAITRED_REWIND_H
#define MAITRED_REWIND_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* Where pages are larger, nothing is put back. */
#define PAGE_BYTES 4096

/* Most mappings of a process; PHP with Debian's extensions has 730. */
#define MAPPINGS_MAX 4096
/* Most pages that are put back: 16 MB. Who has changed more is better off as a new process. */
#define HOT_MAX 4096
/* Most parts of memory that a fork empties. */
#define WIPED_MAX 64
/* Most pages that a copy changes before its mark: 8 MB. */
#define CHANGED_MAX 2048
/* Most descriptors that are open at the mark; as `OPEN_MAX` in rewind.rs. */
#define KNOWN_MAX 256
/* Words of pages that are read at once. */
#define WORDS 4096
#define TEXT_BYTES 65536
/* Room for the words that say why a process does not go back. */
#define REASON_BYTES 128
#define STACK_BYTES 65536
/* As often as a look at the pages may touch some itself. */
#define LOOKS_MAX 4
/* Numbers that the process hands to itself. */
#define REWIND_CARRIED 12
/* Room for the kernel's `struct sigaction`, and the size of its set of signals. */
#define ACTION_BYTES 64
#define SIGNAL_SET_BYTES 8
/* A process's name in /proc/self/comm (prctl(2)). */
#define NAME_BYTES 16

#define MAPPING_READ 1U
#define MAPPING_WRITE 2U
#define MAPPING_EXECUTE 4U
#define MAPPING_SHARED 8U
#define MAPPING_HEAP 16U
#define MAPPING_STACK 32U

struct mapping {
	uintptr_t from;
	uintptr_t to;
	uint64_t offset;
	uint64_t inode;   /* 0: of no file */
	uint64_t device;
	unsigned bits;
};

/* Pages in /proc/self/statm: all, and those that are data. */
struct sizes {
	uint64_t all;
	uint64_t data;
};

/* A part of the image: where the numbers of its pages begin. */
struct region {
	uintptr_t from;
	uintptr_t to;
	size_t first;
};

/* Memory that a fork empties (MADV_WIPEONFORK, MAP_DROPPABLE): what is secret or random. */
struct wiped {
	uintptr_t from;
	uintptr_t to;
};

/* The memory of the process whose copies are marked. */
struct image {
	size_t wiped_count;
	struct wiped wiped[WIPED_MAX];
	int told;   /* it was logged that a copy did not go back */
	size_t count;
	struct region *regions;
	uint32_t *places;   /* of each page: 0 if it is zeros, else its place in `pages` and one more */
	char *pages;
};

/* Open files of /proc/self. */
struct rewind_files {
	int maps;
	int pagemap;
	int statm;
	int status;
};

/* What the kernel keeps for a process beside memory and descriptors. */
struct kept {
	char actions[NSIG][ACTION_BYTES];
	struct rlimit limits[RLIMIT_NLIMITS];
	uid_t users[3];
	gid_t groups[3];
	pid_t group;
	pid_t session;
	int nice;
	/* A change of identity to and fro clears these two. */
	int is_dumpable;
	int dies_with_parent;
	int timer_slack;   /* ns */
	char name[NAME_BYTES];
	stack_t signal_stack;
	char folder[PATH_MAX];
};

struct known {
	int number;
	int flags;
	int spare;   /* another descriptor of the same file, as it was opened; -1: there is none */
	dev_t device;
	ino_t inode;
};

/* What a process has beside its memory. */
struct outside {
	mode_t mask;
	struct kept kept;
	struct kept now;
	struct known known[KNOWN_MAX];
	size_t known_count;
};

bool maitred_rewind_remember(struct outside *outside);
const char *maitred_rewind_put_back(struct outside *outside);
bool maitred_rewind_is_wiped(const struct image *image, uintptr_t page);
ssize_t maitred_rewind_mappings(int file, char *text, struct mapping *mappings);
bool maitred_rewind_sizes(int file, struct sizes *sizes);
bool maitred_rewind_is_alone(int status, char *text);

#endif
