/*
 * The functions that a worker script has registered for its end, over all requests. When it ends
 * within a request, those that earlier requests have registered are of other clients: they run when
 * that request's response is complete.
 *
 * Nothing is allocated here, since the script may have ended for lack of memory.
 */
#include "engine.h"

#include <ext/standard/basic_functions.h>

/* The type of an entry that is skipped. PHP takes it for none; a removed entry has IS_UNDEF. */
#define HIDDEN (1u << 16)

/*
 * Positions in the list. Those before `of_boot` are of the boot, those before `of_earlier` of it
 * and of earlier requests.
 */
static struct {
	uint32_t of_boot;
	uint32_t of_earlier;
} until;

static uint32_t count(void)
{
	return BG(user_shutdown_function_names) ? BG(user_shutdown_function_names)->nNumUsed : 0;
}

/* session_set_save_handler() may remove one, so that the list is shorter. */
static uint32_t end_of_earlier(void)
{
	return MIN(until.of_earlier, count());
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

static void mark_earlier(uint32_t from, uint32_t to)
{
	for (uint32_t i = until.of_boot; i < end_of_earlier(); i++) {
		if (Z_TYPE_INFO_P(at(i)) == from) {
			Z_TYPE_INFO_P(at(i)) = to;
		}
	}
}

static void drop_one(uint32_t position)
{
	HashTable *all = BG(user_shutdown_function_names);

#if PHP_VERSION_ID >= 80200
	if (HT_IS_PACKED(all)) {
		zend_hash_packed_del_val(all, at(position));
		return;
	}
#endif
	zend_hash_del_bucket(all, all->arData + position);
}

/* Those that are removed at the end shorten the list. */
static void drop(uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < MIN(to, count()); i++) {
		if (Z_TYPE_P(at(i)) == IS_PTR) {
			drop_one(i);
		}
	}
}

void maitred_call_functions_of_request(void)
{
	bool was_clean = !CG(unclean_shutdown);

	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	EG(current_execute_data) = NULL;
#ifdef ZEND_HAS_OOM
	/* A release that reports a lack of memory later calls no function until then. */
	EG(delayed_oom).state = ZEND_OOM_STATE_NONE;
#endif
	if (!count()) {
		return;
	}
	mark_earlier(IS_PTR, HIDDEN);
	php_call_shutdown_functions();
	mark_earlier(HIDDEN, IS_PTR);
	zend_try {
		drop(0, until.of_boot);
		drop(end_of_earlier(), count());
	} zend_end_try();
	/* exit() in one of them leaves the process as clean (see maitred_end_request()). */
	if (was_clean && !maitred_engine.fatal && !maitred_engine.client_gone) {
		CG(unclean_shutdown) = 0;
	}
}
