/*
 * The functions that a worker script has registered for its end, over all requests. When it ends
 * within a request, those that earlier requests have registered are of other clients: they run when
 * that request's response is complete.
 *
 * Nothing is allocated here, since the script may have ended for lack of memory.
 */
#include "engine.h"

#include <ext/standard/basic_functions.h>

/* Their positions: those of the boot end at the first, those of earlier requests at the second. */
static struct {
	uint32_t of_boot;
	uint32_t of_earlier;
} until;

static uint32_t count(void)
{
	return BG(user_shutdown_function_names) ? BG(user_shutdown_function_names)->nNumUsed : 0;
}

void maitred_shutdown_functions_of_boot(void)
{
	until.of_boot = count();
}

void maitred_shutdown_functions_of_earlier(void)
{
	until.of_earlier = count();
}

static zval *at(uint32_t position)
{
	HashTable *all = BG(user_shutdown_function_names);

#if PHP_VERSION_ID >= 80200
	if (HT_IS_PACKED(all)) {
		return &all->arPacked[position];
	}
#endif
	return &all->arData[position].val;
}

bool maitred_has_functions_of_others(void)
{
	return until.of_earlier > until.of_boot && count() >= until.of_earlier;
}

/* A value without a type is skipped, and its pointer stays. */
static void mark_earlier(uint32_t type)
{
	for (uint32_t i = until.of_boot; i < until.of_earlier; i++) {
		Z_TYPE_INFO_P(at(i)) = type;
	}
}

static void drop(uint32_t from, uint32_t to)
{
	HashTable *all = BG(user_shutdown_function_names);

	for (uint32_t i = from; i < to; i++) {
		zval function;
		ZVAL_COPY_VALUE(&function, at(i));
		ZVAL_UNDEF(at(i));
		all->nNumOfElements--;
		all->pDestructor(&function);
	}
}

void maitred_call_functions_of_request(void)
{
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	EG(current_execute_data) = NULL;
#ifdef ZEND_HAS_OOM
	/* A release that reports a lack of memory later calls no function until then. */
	EG(delayed_oom).state = ZEND_OOM_STATE_NONE;
#endif
	mark_earlier(IS_UNDEF);
	php_call_shutdown_functions();
	mark_earlier(IS_PTR);
	zend_try {
		drop(0, until.of_boot);
		drop(until.of_earlier, count());
	} zend_end_try();
}
