/*
 * max_execution_time without system calls. PHP arms and disarms ITIMER_PROF and installs its
 * SIGPROF handler for every request: five calls. In programs that are linked with this file and
 * export their dynamic symbols, those calls arrive here. One real timer ticks every TICK_US of CPU
 * time while a limit is armed; arming a limit stores a number of ticks, and PHP's handler runs when
 * they are used up: never early, and at most one tick late.
 *
 * PHP loads its extensions so that they find the C library first (RTLD_DEEPBIND): an extension's
 * own use of SIGPROF bypasses this file, and PHP, as always.
 *
 * A repeating timer, and every other signal and timer, is passed through.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

/* CPU time between two ticks, in microseconds. */
#define TICK_US 500000L
#define SECOND_US 1000000L

void maitred_timers_after_fork(void);

typedef int sigaction_function(int, const struct sigaction *, struct sigaction *);
typedef int sigprocmask_function(int, const sigset_t *, sigset_t *);

static sigaction_function *real_sigaction;
static sigprocmask_function *real_sigprocmask;

/* All of these are read by the signal handler; single stores, no locks. */
static atomic_int ticks_left;       /* > 0: a limit is armed */
static atomic_bool ticking;         /* the real timer runs at TICK_US */
static atomic_bool passed_on;       /* the real timer is a script's repeating one */
static atomic_bool unblocked;       /* SIGPROF is known to be unblocked */

/* The requested action for SIGPROF. Changed only while SIGPROF is blocked. */
static struct sigaction asked;
static bool asked_known;
static bool tick_installed;

static void resolve(void)
{
	real_sigaction = (sigaction_function *) dlsym(RTLD_NEXT, "sigaction");
	real_sigprocmask = (sigprocmask_function *) dlsym(RTLD_NEXT, "sigprocmask");
}

/* Before main(), because dlsym() must not be called from a signal handler. */
__attribute__((constructor)) static void prepare(void)
{
	if (!real_sigaction) {
		resolve();
	}
	pthread_atfork(NULL, NULL, maitred_timers_after_fork);
}

static int call_sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
	if (!real_sigaction) {
		resolve();
	}
	return real_sigaction(number, act, old);
}

static int call_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	if (!real_sigprocmask) {
		resolve();
	}
	return real_sigprocmask(how, set, old);
}

static int set_real_timer(const struct itimerval *value, struct itimerval *old)
{
	return (int) syscall(SYS_setitimer, ITIMER_PROF, value, old);
}

static void stop_ticking(void)
{
	static const struct itimerval none;

	set_real_timer(&none, NULL);
	atomic_store(&ticking, false);
}

static void die_of(int number)
{
	struct sigaction fallback;
	sigset_t set;

	memset(&fallback, 0, sizeof(fallback));
	fallback.sa_handler = SIG_DFL;
	call_sigaction(number, &fallback, NULL);
	sigemptyset(&set);
	sigaddset(&set, number);
	call_sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
}

/* Calls the requested handler, as the kernel would. */
static void deliver(int number, siginfo_t *info, void *context)
{
	struct sigaction action = asked;

	if (!(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_IGN) {
		return;
	}
	if (!(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL) {
		die_of(number);
		return;
	}
	if (action.sa_flags & SA_RESETHAND) {
		asked.sa_handler = SIG_DFL;
		asked.sa_flags = 0;
	}
	if (action.sa_flags & SA_SIGINFO) {
		action.sa_sigaction(number, info, context);
	} else {
		action.sa_handler(number);
	}
}

static void on_tick(int number, siginfo_t *info, void *context)
{
	int error = errno;
	bool from_timer = info && info->si_code == SI_KERNEL;

	if (!from_timer || atomic_load(&passed_on)) {
		deliver(number, info, context);
	} else if (atomic_load(&ticks_left) == 0) {
		stop_ticking();
	} else if (atomic_fetch_sub(&ticks_left, 1) == 1) {
		deliver(number, info, context);
	}
	errno = error;
}

/* Installs on_tick with the requested mask and flags. */
static int install_tick(void)
{
	struct sigaction action;
	int result;

	if (!asked_known) {
		call_sigaction(SIGPROF, NULL, &asked);
		asked_known = true;
	}
	action = asked;
	action.sa_flags = (asked.sa_flags & ~SA_RESETHAND) | SA_SIGINFO | SA_RESTART;
	action.sa_sigaction = on_tick;
	result = call_sigaction(SIGPROF, &action, NULL);
	tick_installed = result == 0;
	return result;
}

static bool same_action(const struct sigaction *one, const struct sigaction *other)
{
	if (one->sa_flags != other->sa_flags || one->sa_handler != other->sa_handler) {
		return false;
	}
	/*
	 * Masks that differ here can still be equal: a system has fewer signals than the masks have
	 * bits.
	 */
	if (memcmp(&one->sa_mask, &other->sa_mask, sizeof(one->sa_mask)) == 0) {
		return true;
	}
	for (int number = 1; number < NSIG; number++) {
		if (sigismember(&one->sa_mask, number) != sigismember(&other->sa_mask, number)) {
			return false;
		}
	}
	return true;
}

static int ask_for(const struct sigaction *act)
{
	sigset_t set;
	sigset_t before;
	int result;

	if (tick_installed && same_action(act, &asked)) {
		return 0;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGPROF);
	call_sigprocmask(SIG_BLOCK, &set, &before);
	asked = *act;
	asked_known = true;
	result = install_tick();
	call_sigprocmask(SIG_SETMASK, &before, NULL);
	return result;
}

int sigaction(int number, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction before;

	if (number != SIGPROF) {
		return call_sigaction(number, act, old);
	}
	if (!asked_known) {
		call_sigaction(SIGPROF, NULL, &asked);
		asked_known = true;
	}
	before = asked;
	if (act && ask_for(act) != 0) {
		return -1;
	}
	if (old) {
		*old = before;
	}
	return 0;
}

/* SIGPROF and nothing else: what PHP unblocks for every request. */
static bool only_sigprof(const sigset_t *set)
{
	sigset_t rest = *set;

	if (sigismember(set, SIGPROF) != 1) {
		return false;
	}
	sigdelset(&rest, SIGPROF);
	return sigisemptyset(&rest);
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	int result;

	if (set && !old && how == SIG_UNBLOCK && atomic_load(&unblocked) && only_sigprof(set)) {
		return 0;
	}
	/* Cleared first: a tick between the call and the store must not find it wrong. */
	if (set && how != SIG_UNBLOCK) {
		atomic_store(&unblocked, false);
	}
	result = call_sigprocmask(how, set, old);
	if (result == 0 && set) {
		if (how == SIG_SETMASK && !sigismember(set, SIGPROF)) {
			atomic_store(&unblocked, true);
		} else if (how == SIG_UNBLOCK && sigismember(set, SIGPROF)) {
			atomic_store(&unblocked, true);
		}
	}
	return result;
}

static int ticks_for(const struct timeval *time)
{
	long seconds = time->tv_sec;
	long ticks;

	if (seconds > INT_MAX / 4) {
		seconds = INT_MAX / 4;
	}
	ticks = (seconds * SECOND_US + time->tv_usec + TICK_US - 1) / TICK_US;
	/* The current tick may be nearly over; one more keeps the limit from firing early. */
	return (int) ticks + 1;
}

static int arm(const struct timeval *time)
{
	static const struct itimerval tick = {
		.it_interval = { .tv_sec = TICK_US / SECOND_US, .tv_usec = TICK_US % SECOND_US },
		.it_value = { .tv_sec = TICK_US / SECOND_US, .tv_usec = TICK_US % SECOND_US },
	};

	if (!tick_installed && install_tick() != 0) {
		return -1;
	}
	atomic_store(&ticks_left, ticks_for(time));
	if (atomic_exchange(&ticking, true)) {
		return 0;
	}
	return set_real_timer(&tick, NULL);
}

int setitimer(__itimer_which_t which, const struct itimerval *value, struct itimerval *old)
{
	int left = atomic_load(&ticks_left);

	if (which != ITIMER_PROF || !value) {
		return (int) syscall(SYS_setitimer, which, value, old);
	}
	if (timerisset(&value->it_interval) || atomic_load(&passed_on)) {
		bool repeats = timerisset(&value->it_interval);
		atomic_store(&ticks_left, 0);
		atomic_store(&ticking, false);
		atomic_store(&passed_on, repeats);
		if (repeats || !timerisset(&value->it_value)) {
			return set_real_timer(value, old);
		}
	}
	if (old) {
		memset(old, 0, sizeof(*old));
		old->it_value.tv_sec = left * TICK_US / SECOND_US;
		old->it_value.tv_usec = left * TICK_US % SECOND_US;
	}
	if (!timerisset(&value->it_value)) {
		atomic_store(&ticks_left, 0);
		return 0;
	}
	return arm(&value->it_value);
}

/* Interval timers are not inherited (fork(2)). */
void maitred_timers_after_fork(void)
{
	atomic_store(&ticks_left, 0);
	atomic_store(&ticking, false);
	atomic_store(&passed_on, false);
}
