/*
 * OPcache's lock for reading, without system calls. OPcache empties its memory only while no
 * process uses it: each request takes a read lock of one byte of a file and releases it at its end,
 * and a process that is to empty the memory asks for a process that has one (accel_activate_add(),
 * accel_unlock_all(), accel_is_inactive() in ZendAccelerator.c). That is two calls of fcntl() for
 * every request.
 *
 * Workers of one zygote use places in shared memory instead: each has a mutex that it locks in
 * place of the byte. The kernel unlocks a robust mutex when its owner dies
 * (get_robust_list(2)), as it releases the lock of a file. OPcache's calls of fcntl() arrive here:
 *
 * - a read lock of the byte is the mutex of this process's place, its release unlocks it;
 * - the question for a lock of the byte looks at all places, and then asks the kernel: children of
 *   the zygote and of scripts have no place, and lock the file;
 * - all else goes to the C library, the locks for writing included.
 *
 * What OPcache's order of events relies on holds: a place is locked before the process reads what
 * a restart writes, and places are looked at after the restart was announced. A mutex is locked by
 * an atomic instruction, and a fence follows.
 */
#include "engine.h"
#include "imports.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <zend_extensions.h>

/*
 * In these versions the lock is as described (ZendAccelerator.c and zend_shared_alloc.c). A thread
 * has no place: it would share that of its process.
 */
#if !defined(ZTS) && defined(__GLIBC__) && defined(__LP64__) && PHP_VERSION_ID >= 80100 \
	&& PHP_VERSION_ID < 80600
#define LOCK_IS_KNOWN true
#else
#define LOCK_IS_KNOWN false
#endif

/* The byte that stands for the use of OPcache's memory (`l_start` of `mem_usage_lock`). */
#define USE_BYTE 1

/* Bytes of a processor's cache line: workers must not share one. */
#define LINE_BYTES 64

/* Locked while a worker uses OPcache's memory. */
struct place {
	pthread_mutex_t mutex;
} __attribute__((aligned(LINE_BYTES)));

static struct place *places;
static uint32_t place_count;

/* The file of OPcache's locks; -1: none. */
static int lock_file = -1;

/* The place of this process; NULL: it locks the file. */
static struct place *own;
/* This process has locked its mutex. */
static bool is_locked;
/* It may have a lock of the file, for writing or reading. */
static bool has_file_lock;

/* A child of a script shares neither its parent's locks of files nor its mutex. */
static void forget_place(void)
{
	own = NULL;
	is_locked = false;
}

/* Never waits. False if another process has it, or looks at it right now. */
static bool lock_place(struct place *place)
{
	int result = pthread_mutex_trylock(&place->mutex);

	if (result == EOWNERDEAD) {
		/* What it guards is OPcache's memory, which has a lock of its own for writing. */
		result = pthread_mutex_consistent(&place->mutex);
	}
	atomic_thread_fence(memory_order_seq_cst);
	return result == 0;
}

/*
 * The process that has locked it; 0: none. A robust mutex has the thread's id in the word that the
 * kernel knows, and PHP runs in the first thread, whose id is that of the process.
 */
static pid_t owner_of(const struct place *place)
{
	int word = __atomic_load_n(&place->mutex.__data.__lock, __ATOMIC_SEQ_CST);

	return word & FUTEX_TID_MASK;
}

static bool includes_use(const struct flock *lock)
{
	return lock->l_whence == SEEK_SET && lock->l_start <= USE_BYTE
		&& (lock->l_len == 0 || lock->l_start + lock->l_len > USE_BYTE);
}

static bool is_everything(const struct flock *lock)
{
	return lock->l_whence == SEEK_SET && lock->l_start == 0 && lock->l_len == 0;
}

/*
 * Another process that has locked its place; 0: none. The kernel unlocks no mutex of a process that
 * has overwritten the list of its mutexes: such a process does not count when it is dead.
 */
static pid_t other_user(void)
{
	for (uint32_t i = 0; i < place_count; i++) {
		struct place *place = &places[i];
		pid_t owner;
		if (place == own && is_locked) {
			continue;
		}
		if (lock_place(place)) {
			pthread_mutex_unlock(&place->mutex);
			continue;
		}
		owner = owner_of(place);
		if (owner != 0 && (kill(owner, 0) == 0 || errno != ESRCH)) {
			return owner;
		}
	}
	return 0;
}

static int ask(struct flock *lock)
{
	pid_t user = 0;

	if (lock->l_type == F_WRLCK && includes_use(lock)) {
		atomic_thread_fence(memory_order_seq_cst);
		user = other_user();
	}
	if (user == 0) {
		/* Last: a process whose place is just being looked at locks the file. */
		return fcntl(lock_file, F_GETLK, lock);
	}
	lock->l_type = F_RDLCK;
	lock->l_whence = SEEK_SET;
	lock->l_start = USE_BYTE;
	lock->l_len = 1;
	lock->l_pid = user;
	return 0;
}

static int lock_or_unlock(int command, struct flock *lock)
{
	if (lock->l_type == F_RDLCK && command == F_SETLK && includes_use(lock) && lock->l_len == 1) {
		if (is_locked) {
			return 0;
		}
		if (lock_place(own)) {
			is_locked = true;
			return 0;
		}
	}
	if (lock->l_type == F_UNLCK) {
		if (is_locked && includes_use(lock)) {
			is_locked = false;
			pthread_mutex_unlock(&own->mutex);
		}
		if (!has_file_lock) {
			return 0;
		}
		has_file_lock = !is_everything(lock);
	} else {
		has_file_lock = true;
	}
	return fcntl(lock_file, command, lock);
}

/* What OPcache calls in place of fcntl(). */
static int opcache_fcntl(int descriptor, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	/* As the C library: also where it is a number, or there is none. */
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (descriptor == lock_file && command == F_GETLK) {
		return ask(argument);
	}
	if (descriptor == lock_file && own && (command == F_SETLK || command == F_SETLKW)) {
		return lock_or_unlock(command, argument);
	}
	return fcntl(descriptor, command, argument);
}

static struct place *create_places(uint32_t count)
{
	pthread_mutexattr_t kind;
	struct place *created;
	bool usable;

	created = mmap(NULL, count * sizeof(*created), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (created == MAP_FAILED) {
		return NULL;
	}
	pthread_mutexattr_init(&kind);
	usable = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED) == 0
		&& pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST) == 0;
	for (uint32_t i = 0; i < count && usable; i++) {
		usable = pthread_mutex_init(&created[i].mutex, &kind) == 0;
	}
	pthread_mutexattr_destroy(&kind);
	if (!usable) {
		munmap(created, count * sizeof(*created));
		return NULL;
	}
	return created;
}

bool maitred_php_share_opcache_lock(int file, uint32_t workers)
{
	static const char *const names[] = { "fcntl", "fcntl64", NULL };
	const zend_extension *opcache = zend_get_extension("Zend OPcache");

	if (!LOCK_IS_KNOWN || places || workers == 0 || !opcache || !opcache->startup
		|| pthread_atfork(NULL, NULL, forget_place) != 0) {
		return false;
	}
	places = create_places(workers);
	if (!places) {
		return false;
	}
	place_count = workers;
	lock_file = file;
	/* If it fails after one of several words, those calls go to the C library as before. */
	if (!maitred_replace_import((const void *) opcache->startup, names, (void *) opcache_fcntl)) {
		place_count = 0;
		return false;
	}
	return true;
}

/*
 * Whether the kernel unlocks this mutex when the process dies. The C library registers a list for
 * that in children that its fork() has made, and the owner in the mutex has to be this thread.
 */
static bool is_unlocked_at_death(struct place *place)
{
	struct robust_list_head *list = NULL;
	size_t length = 0;
	bool is_owner;

	if (syscall(SYS_get_robust_list, 0, &list, &length) != 0 || !list || !lock_place(place)) {
		return false;
	}
	is_owner = owner_of(place) == (pid_t) syscall(SYS_gettid);
	pthread_mutex_unlock(&place->mutex);
	return is_owner;
}

void maitred_php_take_opcache_lock(uint32_t worker)
{
	if (worker < place_count && is_unlocked_at_death(&places[worker])) {
		has_file_lock = false;
		own = &places[worker];
	}
}
