/*
 * Functions whose effects persist in a process, or may: a process that a request has changed so
 * serves no other.
 */
#include "engine.h"

#include <string.h>

#define LASTING_MAX 16

/* What the rewind of a copy does not undo. */
static const char *const in_copies[] = { "dl", "pcntl_rfork", "pcntl_setcpuaffinity", "pcntl_setns",
	"pcntl_setqos_class", "pcntl_unshare", "sem_get", "shm_attach", "shmop_open", NULL };

/* What is the kernel's, and not reset at the end of a request. php-fpm has no pcntl. */
static const char *const in_classic_workers[] = { "pcntl_alarm", "pcntl_setcpuaffinity",
	"pcntl_setns", "pcntl_setpriority", "pcntl_signal", "pcntl_sigprocmask", "pcntl_unshare",
	"posix_setpgid", "posix_setrlimit", "proc_nice", NULL };

static const char *const *lasting;
static zif_handler original_handlers[LASTING_MAX];

static ZEND_NAMED_FUNCTION(call_and_mark_process)
{
	const char *name = ZSTR_VAL(execute_data->func->common.function_name);

	/* The boot's effects are in every copy, those of a preloaded script in every worker. */
	maitred_engine.spent |= maitred_engine.copied
		|| (maitred_engine.mode == MAITRED_CLASSIC && maitred_engine.request);
	for (size_t i = 0; lasting[i]; i++) {
		if (!strcmp(name, lasting[i])) {
			original_handlers[i](INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

void maitred_watch_lasting(void)
{
	lasting = maitred_engine.mode == MAITRED_CLASSIC ? in_classic_workers : in_copies;
	for (size_t i = 0; lasting[i]; i++) {
		original_handlers[i] = maitred_take_over(lasting[i], call_and_mark_process);
	}
}
