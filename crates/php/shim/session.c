/*
 * The session of one visitor, which the next one must not get: in a worker script between two
 * requests, in an application that is copied before the first.
 */
#include "engine.h"

#include <ext/session/php_session.h>
#include <ext/standard/url_scanner_ex.h>
#include <zend_constants.h>

/* Missing in a PHP without sessions. */
#pragma weak ps_globals
#pragma weak php_session_flush

const char *maitred_session_name(void)
{
	return &ps_globals ? PS(session_name) : NULL;
}

/* PHP reads the session id of a visitor only where it has none. */
static void forget(void)
{
	zend_constant *sid = zend_hash_str_find_ptr(EG(zend_constants), ZEND_STRL("SID"));

	if (!Z_ISUNDEF(PS(http_session_vars))) {
		zval_ptr_dtor(&PS(http_session_vars));
		ZVAL_UNDEF(&PS(http_session_vars));
	}
	if (PS(id)) {
		zend_string_release_ex(PS(id), 0);
		PS(id) = NULL;
	}
	if (PS(session_vars)) {
		zend_string_release_ex(PS(session_vars), 0);
		PS(session_vars) = NULL;
	}
	zend_hash_str_del(&EG(symbol_table), ZEND_STRL("_SESSION"));
	/* The module's, with the id. It stays, since code that has used it has its address. */
	if (sid && ZEND_CONSTANT_MODULE_NUMBER(sid) != PHP_USER_CONSTANT) {
		zval_ptr_dtor(&sid->value);
		ZVAL_EMPTY_STRING(&sid->value);
	}
}

void maitred_end_session(void)
{
	if (!&ps_globals) {
		return;
	}
	if (PS(session_status) == php_session_active) {
		php_session_flush(1);
	}
	forget();
	if (PS(mod) && (PS(mod_data) || PS(mod_user_implemented))) {
		PS(mod)->s_close(&PS(mod_data));
	}
	PS(session_status) = php_session_none;
}

void maitred_forget_session(void)
{
	if (&ps_globals) {
		forget();
		php_url_scanner_reset_session_vars();
	}
}
