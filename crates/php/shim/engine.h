/* What the shim's own C files share. Rust never sees this header. */
#ifndef MAITRED_ENGINE_H
#define MAITRED_ENGINE_H

#include "shim.h"

#include <SAPI.h>
#include <php.h>
#include <php_ini.h>
#include <php_main.h>
#include <php_output.h>
#include <php_variables.h>
#include <zend_ini.h>

#include MAITRED_VERSION_HEADER

/* The cgi.* and fastcgi.* directives, as php-fpm registers them. */
struct maitred_directives {
	bool rfc2616_headers;
	bool nph;
	bool fix_pathinfo;
	bool force_redirect;
	bool discard_path;
	bool logging;
	char *redirect_status_env;
	char *error_header;
	char *fpm_config;
};

/* The process serves one request at a time; `request` is NULL between two. */
struct maitred_engine {
	const struct maitred_callbacks *callbacks;
	const struct maitred_request *request;
	uint64_t requests;      /* requests that were begun, the one in hand included */
	bool finished;
	bool client_gone;
	bool spent;             /* see struct maitred_served */
	bool renew;             /* see struct maitred_served */
	bool boots;             /* the script runs until it asks for a request: maitred_await_copy() */
	bool copied;            /* this process is a copy of one that did */
	bool fpm;               /* see struct maitred_settings */
	int mode;               /* see struct maitred_settings */
	bool compiled;          /* a script was compiled that OPcache did not hold */
	bool booted_full;       /* OPcache was full when the boot was over */
	bool works;             /* a worker script is run */
	struct maitred_directives directives;
};

extern struct maitred_engine maitred_engine;

/* By its place in the list, which may grow or move while who goes through it closes what it finds. */
static inline zval *maitred_resource_at(uint32_t place)
{
#if PHP_VERSION_ID >= 80200
	return ZEND_HASH_ELEMENT(&EG(regular_list), place);
#else
	return &EG(regular_list).arData[place].val;
#endif
}

extern zend_module_entry maitred_module_entry;

/* Acts on what a callback said. May bail out. */
void maitred_obey(int verdict);

/* Ends the answer once; later output is dropped. */
void maitred_finish(void);

/* The request that begins now is the one in hand. */
void maitred_begin(const struct maitred_request *request);

void maitred_fill_request_info(const struct maitred_request *request);
void maitred_add_error_header(void);

/* Runs a request to its end. All bailouts are caught inside. */
void maitred_run(const struct maitred_request *request, struct maitred_served *served);

/* worker.c */
bool maitred_worker_is_booted(void);
void maitred_worker_starts(void);
/* The script asks for no further request. */
void maitred_worker_leaves(void);
/* What the script asks for requests. */
void *maitred_worker_exchange(void);
void maitred_register_worker_functions(int module_number);

/* Registers apache_response_headers(). */
void maitred_register_response_headers(void);

/* functions.c */
PHP_FUNCTION(fastcgi_finish_request);
PHP_FUNCTION(apache_request_headers);

/* response.c */
size_t maitred_write(const char *bytes, size_t length);
void maitred_flush(void *context);
int maitred_send_headers(sapi_headers_struct *headers);
int maitred_send_hints(void);
void maitred_log_message(const char *message, int syslog_type);
void maitred_log(int level, const char *message);

/* body.c */
size_t maitred_read_body(char *buffer, size_t capacity);
void maitred_close_body(void);
/* What was read of the body of a request that is over goes, where the script does not; NULL: nothing was. */
void maitred_release_body(php_stream *body);

/* modules.c */
bool maitred_is_for_startup(const char *name);
void maitred_hook_modules(void);
void maitred_disable_listed(const char *name, const char *list);

/* variables.c */
void maitred_hook_environment(void);
char *maitred_getenv(const char *name, size_t name_length);
char *maitred_read_cookies(void);
void maitred_register_variables(zval *variables);

const struct maitred_param *maitred_param_named(const char *name, size_t name_length);

/* request_ini.c */
int maitred_activate(void);
void maitred_pass_values(const struct maitred_request *request);
void maitred_request_ini_start(void);
void maitred_request_ini_stop(void);

/* snapshot.c */
void maitred_snapshot_start(void);
/* Returns in copies only, with their first request. May bail out. */
const struct maitred_request *maitred_await_copy(void);
PHP_FUNCTION(maitred_snapshot);

/* ending.c: as php_request_shutdown(), for a process that may be a copy */
void maitred_end_request(void);

/* cache.c: whether the request is one of its own, whose directives then are set */
bool maitred_cache_activate(void);
/* Before OPcache does the same: it compiles what it does not hold. */
void maitred_cache_hook(void);
/* Whether OPcache is full, where something was compiled since it was asked last: otherwise nobody misses it. */
bool maitred_cache_is_full(void);

/* limits.c: the limits of a worker script's request, from its beginning until they are put back */
void maitred_limits_begin(void);
void maitred_limits_end(void);
/*
 * Has the engine keep to memory_limit as it is. It refuses one below what it holds, so what is free goes
 * first then; false: that is not enough, and it keeps to the limit before.
 */
bool maitred_limit_memory(void);
/* After it was lifted for something small. If more is held by now than memory_limit, that is the limit. */
void maitred_put_memory_limit_back(void);

/* timers.c */
void maitred_timers_after_fork(void);

/* folder.c */
void maitred_folder_enter(const char *script, size_t length);
void maitred_folder_return(void);
void maitred_folder_leave(bool seen);

/* Whether requests start and end where the process was started, unless a folder is named. */
bool maitred_keeps_folder(void);

#endif
