/* The variables of a request, for a script that takes one after the other. */
#include "engine.h"

/*
 * $_ENV is kept. Variables that are only filled when code that uses them is compiled ($_SERVER and
 * $_REQUEST, with auto_globals_jit) are refilled if they have been used; $_SESSION is not part of
 * the request.
 */
void maitred_renew_superglobals(void)
{
	zval *files = &PG(http_globals)[TRACK_VARS_FILES];
	zend_auto_global *global;

	zval_ptr_dtor_nogc(files);
	ZVAL_UNDEF(files);
	ZEND_HASH_FOREACH_PTR(CG(auto_globals), global) {
		if (!global->auto_global_callback
			|| zend_string_equals(global->name, ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV))) {
			continue;
		}
		if (!global->jit || !global->armed) {
			global->armed = global->auto_global_callback(global->name);
		}
	} ZEND_HASH_FOREACH_END();
}

/* A destructor that runs then finds it empty. */
static void empty_array(zval *array)
{
	zval old;

	ZVAL_COPY_VALUE(&old, array);
	ZVAL_EMPTY_ARRAY(array);
	zval_ptr_dtor(&old);
}

/*
 * Code that runs before the next request has replaced them (destructors of what they hold, a
 * handler of errors) would send the last visitor's data to the next one. Destructors run here,
 * where output is dropped.
 */
void maitred_empty_superglobals(void)
{
	zend_auto_global *global;

	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		if (i != TRACK_VARS_ENV) {
			empty_array(&PG(http_globals)[i]);
		}
	}
	ZEND_HASH_FOREACH_PTR(CG(auto_globals), global) {
		zval *array = zend_hash_find(&EG(symbol_table), global->name);
		if (array && global->auto_global_callback
			&& !zend_string_equals(global->name, ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_ENV))) {
			empty_array(array);
		}
	} ZEND_HASH_FOREACH_END();
}
