/*
 * Two forks for the price of one. The process between the two lives for a moment and does nothing:
 * made by vfork(), it borrows this one's memory instead of having its page tables copied, which for
 * a process of PHP's size costs as much as the fork that is wanted.
 *
 * vfork()'s child must not return from the function that called it, and does not: it ends here. The
 * orphan does, on the copy of the stack that fork() has given it, in which this frame is whole.
 */
#include <errno.h>
#include <features.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35) && (defined(__x86_64__) || defined(__aarch64__))
#include <sys/rseq.h>
#define HAS_RSEQ 1
#endif

/* What became of it; an error number is negative. */
#define PARENT 0
#define ORPHAN 1

/*
 * A process made by vfork() has no area for restartable sequences (rseq(2)), and so its children
 * have none, while glibc goes on believing in the one it registered. `unbroken.rs` says what it is
 * for.
 */
static void register_rseq(void)
{
#ifdef HAS_RSEQ
	/* The size that every kernel with rseq(2) takes, and the least that glibc reserves. */
	const unsigned area_bytes = 32;

	if (__rseq_size > 0) {
		char *area = (char *)__builtin_thread_pointer() + __rseq_offset;

		/* Without one, reading the processor's number and accounting just cost more. */
		(void)syscall(SYS_rseq, area, area_bytes, 0, RSEQ_SIG);
	}
#endif
}

int maitred_fork_orphan(void (*announce)(void *context, int pid), void *context, int *between)
{
	int status;
	pid_t child = vfork();

	if (child == 0) {
		pid_t orphan;

		*between = getpid();
		orphan = fork();
		if (orphan == 0) {
			register_rseq();
			return ORPHAN;
		}
		if (orphan < 0) {
			/* Exit codes have room for it: Linux counts its errors below 134. */
			_exit(errno);
		}
		announce(context, orphan);
		_exit(0);
	}
	if (child < 0) {
		return -errno;
	}
	while (waitpid(child, &status, 0) < 0) {
		if (errno != EINTR) {
			return -errno;
		}
	}
	if (!WIFEXITED(status)) {
		return -ECHILD;
	}
	return WEXITSTATUS(status) == 0 ? PARENT : -WEXITSTATUS(status);
}
