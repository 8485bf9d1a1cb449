/*
 * What a process has beside its memory, for one that goes back (rewind.c): descriptors, and what
 * the kernel keeps for it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rewind.h"

static bool read_kept(struct kept *kept)
{
	memset(kept, 0, sizeof(*kept));
	for (int number = 1; number < NSIG; number++) {
		/* As the kernel has it: past the C library, and wrappers before it. */
		syscall(SYS_rt_sigaction, number, NULL, kept->actions[number], SIGNAL_SET_BYTES);
	}
	for (int limit = 0; limit < RLIMIT_NLIMITS; limit++) {
		getrlimit(limit, &kept->limits[limit]);
	}
	getresuid(&kept->users[0], &kept->users[1], &kept->users[2]);
	getresgid(&kept->groups[0], &kept->groups[1], &kept->groups[2]);
	kept->group = getpgid(0);
	kept->session = getsid(0);
	errno = 0;
	kept->nice = getpriority(PRIO_PROCESS, 0);
	kept->is_dumpable = prctl(PR_GET_DUMPABLE);
	prctl(PR_GET_PDEATHSIG, &kept->dies_with_parent);
	kept->timer_slack = prctl(PR_GET_TIMERSLACK);
	prctl(PR_GET_NAME, kept->name);
	sigaltstack(NULL, &kept->signal_stack);
	return syscall(SYS_getcwd, kept->folder, sizeof(kept->folder)) > 0;
}

/* What can be put back is. False: something is left that cannot. */
static bool put_back_kept(struct outside *outside)
{
	static const int timers[] = { ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF };
	static const struct itimerval none;
	struct kept *then = &outside->kept;
	struct kept *now = &outside->now;
	uint64_t pending = 0;

	/* Before signals are looked for: a timer may send one until it is stopped. */
	for (size_t i = 0; i < sizeof(timers) / sizeof(*timers); i++) {
		syscall(SYS_setitimer, timers[i], &none, NULL);
	}
	if (!read_kept(now) || syscall(SYS_rt_sigpending, &pending, SIGNAL_SET_BYTES) < 0 || pending) {
		return false;
	}
	for (int number = 1; number < NSIG; number++) {
		if (memcmp(then->actions[number], now->actions[number], ACTION_BYTES)) {
			syscall(SYS_rt_sigaction, number, then->actions[number], now->actions[number],
				SIGNAL_SET_BYTES);
			memcpy(now->actions[number], then->actions[number], ACTION_BYTES);
		}
	}
	if (strcmp(then->folder, now->folder)) {
		if (syscall(SYS_chdir, then->folder) < 0) {
			return false;
		}
		memcpy(now->folder, then->folder, sizeof(now->folder));
	}
	/* These two files of /proc are everybody's own. */
	if (memcmp(then->name, now->name, NAME_BYTES)) {
		prctl(PR_SET_NAME, then->name);
		memcpy(now->name, then->name, NAME_BYTES);
	}
	if (then->timer_slack != now->timer_slack) {
		prctl(PR_SET_TIMERSLACK, (unsigned long) then->timer_slack);
		now->timer_slack = then->timer_slack;
	}
	umask(outside->mask);
	return memcmp(then, now, sizeof(*then)) == 0;
}

static bool remember(struct outside *outside, int number, int spare, const struct stat *found)
{
	struct known *known = &outside->known[outside->known_count];

	if (outside->known_count == KNOWN_MAX) {
		return false;
	}
	known->number = number;
	known->flags = fcntl(number, F_GETFD);
	known->spare = spare;
	known->device = found->st_dev;
	known->inode = found->st_ino;
	outside->known_count++;
	return true;
}

/*
 * By number. Files are kept open once more: PHP closes the one of the script when that has ended,
 * and would close whatever has its number by then.
 */
static bool remember_known(struct outside *outside)
{
	size_t count = outside->known_count;
	struct stat found;
	int highest = count > 0 ? outside->known[count - 1].number : 0;

	outside->known_count = 0;
	for (size_t i = 0; i < count; i++) {
		int number = outside->known[i].number;
		int spare = -1;
		if (fstat(number, &found) < 0) {
			continue;
		}
		if (S_ISREG(found.st_mode)) {
			spare = fcntl(number, F_DUPFD_CLOEXEC, highest + 1);
			highest = spare > highest ? spare : highest;
		}
		remember(outside, number, spare, &found);
	}
	count = outside->known_count;
	for (size_t i = 0; i < count; i++) {
		int spare = outside->known[i].spare;
		if (spare >= 0 && (fstat(spare, &found) < 0 || !remember(outside, spare, -1, &found))) {
			return false;
		}
	}
	return true;
}

/* Whether it is the file that it was, as far as it can be made that again. */
static bool is_known(const struct known *known)
{
	struct stat found;
	bool is_open = fstat(known->number, &found) == 0;

	if (is_open && found.st_dev == known->device && found.st_ino == known->inode) {
		return true;
	}
	return known->spare >= 0
		&& syscall(SYS_dup3, known->spare, known->number, known->flags & FD_CLOEXEC ? O_CLOEXEC : 0)
		>= 0;
}

/* Closes all others. False: one of those that were open is not what it was. */
static bool close_others(struct outside *outside)
{
	unsigned first = 0;

	for (size_t i = 0; i < outside->known_count; i++) {
		const struct known *known = &outside->known[i];
		if (!is_known(known)) {
			return false;
		}
		if ((unsigned) known->number > first
			&& syscall(SYS_close_range, first, known->number - 1, 0) < 0) {
			return false;
		}
		first = (unsigned) known->number + 1;
	}
	return syscall(SYS_close_range, first, UINT_MAX, 0) == 0;
}

static bool has_children(void)
{
	siginfo_t ended;

	return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

bool maitred_rewind_remember(struct outside *outside)
{
	outside->mask = umask(0);
	umask(outside->mask);
	return remember_known(outside) && read_kept(&outside->kept);
}

/* Puts back what it can. Returns what cannot be, in a few words; NULL: nothing. */
const char *maitred_rewind_put_back(struct outside *outside)
{
	if (has_children()) {
		return "it has children";
	}
	if (!put_back_kept(outside)) {
		return "its signals, limits, identity or folder are not what they were";
	}
	return close_others(outside) ? NULL : "a descriptor is not what it was";
}
