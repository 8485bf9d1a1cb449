/* Declarations that the shim's C files share. Rust never sees this header. */
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

#if PHP_VERSION_ID < 80200
#include "version/php81.h"
#else
#include "version/php82.h"
#endif

/* The cgi.* and fastcgi.* directives, as php-fpm registers them. */
struct maitred_directives {
	bool rfc2616_headers;
	bool nph;
	bool fix_pathinfo;
	bool force_redirect;
	bool discard_path;
	bool logging;
	bool script_path_encoded;       /* from PHP 8.5 on */
	char *redirect_status_env;
	char *error_header;
	char *fpm_config;
};

/* The process serves one request at a time; `request` is NULL between two. */
struct maitred_engine {
	const struct maitred_callbacks *callbacks;
	const struct maitred_request *request;
	uint64_t requests;      /* requests started, the running one included */
	bool finished;
	bool client_gone;
	bool body_is_cut;
	bool fatal;             /* the script had a fatal error */
	unsigned writes_while_leaving; /* see leave_script() */
	bool spent;             /* see struct maitred_served */
	bool renew;             /* see struct maitred_served */
	bool boots;             /* the script boots, up to maitred_await_copy() */
	bool copied;            /* this process is a copy of a booted one */
	bool fpm;               /* see struct maitred_settings */
	int mode;               /* see struct maitred_settings */
	bool compiled;          /* a script missing in OPcache was compiled */
	bool booted_full;       /* OPcache was full after the boot */
	bool works;             /* a worker script runs */
	const char *preload;    /* see struct maitred_settings */
	bool preloads;          /* classes are preloaded for this pool */
	struct maitred_directives directives;
};

extern struct maitred_engine maitred_engine;

/* By index in the list, which may grow or move while a caller iterates over it and closes entries.
 */
static inline zval *maitred_resource_at(uint32_t place)
{
#if PHP_VERSION_ID >= 80200
	return ZEND_HASH_ELEMENT(&EG(regular_list), place);
#else
	return &EG(regular_list).arData[place].val;
#endif
}

extern zend_module_entry maitred_module_entry;

/* Acts on a callback's verdict. May bail out. */
void maitred_obey(int verdict);

/*
 * Ends the script, in classic mode whatever ignore_user_abort says; otherwise its output is
 * dropped. May bail out.
 */
void maitred_leave_script(void);

/* Completes the response once; later output is dropped. */
void maitred_finish(void);

/* Makes this request the running one. */
void maitred_begin(const struct maitred_request *request);

void maitred_fill_request_info(const struct maitred_request *request);
void maitred_add_error_header(void);

/* Runs a request to its end. All bailouts are caught inside. */
void maitred_run(const struct maitred_request *request, struct maitred_served *served);

/* worker.c */
bool maitred_worker_is_booted(void);
void maitred_worker_starts(void);
/* The script takes no further request. */
void maitred_worker_leaves(void);
/*
 * Completes the response to a request within which a worker script has ended, if there were earlier
 * requests. Returns the response's status; 0: it is not complete.
 */
int maitred_complete_response(void);
/* The exchange from which the script takes requests. */
void *maitred_worker_exchange(void);
void maitred_register_worker_functions(int module_number);

/* Registers apache_response_headers(). */
void maitred_register_response_headers(void);

/* session.c */
/* NULL: this PHP has no sessions. */
const char *maitred_session_name(void);
/* As the session module at the end of a request, but the save handlers of the script are kept. */
void maitred_end_session(void);
/* Leaves nothing of a session that is closed. */
void maitred_forget_session(void);

/* superglobals.c */
void maitred_renew_superglobals(void);
/* Between two requests; destructors run. May throw. */
void maitred_empty_superglobals(void);

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
/* Releases the buffered body of a finished request of a running script; NULL: nothing was read. */
void maitred_release_body(php_stream *body);

/* modules.c */
bool maitred_is_for_startup(const char *name);
void maitred_hook_modules(void);
void maitred_disable_listed(const char *name, const char *list);

/* opcache.c */
/*
 * Runs `work` in a request of its own, which logs nothing. Returns whether it completed; if not,
 * the process must not continue.
 */
bool maitred_in_quiet_request(void (*work)(void *context), void *context);
/* Whether memory ran out in the last such request: PHP must not be called any more. */
bool maitred_is_exhausted(void);
/* Whether a script is readable and does not depend on `short_open_tag`. */
bool maitred_reads_alike(const char *path);

/* preload.c */
/* Gives a script that is no file its text. */
void maitred_pass_preload_script(zend_file_handle *file);
/* Whether the script has failed because it declares a name that exists. */
bool maitred_preloading_conflicts(void);

/* snapshot.c */
/* Replaces the handler of a function. Returns the previous one; NULL: there is none. */
zif_handler maitred_take_over(const char *name, zif_handler handler);

/*
 * lasting.c: from now on a request that calls a function with effects on the process has the
 * process end after it. Once, in a classic zygote or in one that boots.
 */
void maitred_watch_lasting(void);

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

/* connections.c */
void maitred_close_preloaded_connections(void);

/* request_reads.c: which parts of a booting script read its request */
void maitred_reads_start(void);
void maitred_reads_end(void);
PHP_FUNCTION(maitred_before_request_read);

/* ending.c: php_request_shutdown() for a process that may be a copy; true: it may serve on */
bool maitred_end_request(void);
/* Has errors noted after which the process may not serve on. */
void maitred_note_fatal_errors(void);
/* What error_get_last() returns. */
void maitred_forget_last_error(void);

/* opcache.c: whether the request is one of its own; then it sets their directives */
bool maitred_cache_activate(void);
/* Before OPcache hooks in: it passes on what it does not hold. */
void maitred_cache_hook(void);
/*
 * Whether OPcache is full, if a script has been compiled since the last call: otherwise it does not
 * matter.
 */
bool maitred_cache_is_full(void);

/* limits.c: the limits of a worker script's request, from its start until they are restored */
void maitred_limits_begin(void);
void maitred_limits_end(void);
/* Before the next request: also what the script has changed since. What the boot sets stays. */
void maitred_limits_rest(void);
/*
 * Sets the engine's limit to memory_limit. The engine refuses a limit below its usage, so free
 * memory is released first; false: that is not enough, and the previous limit stays.
 */
bool maitred_limit_memory(void);
/*
 * Restores the limit after it was lifted for a small allocation. If usage exceeds memory_limit by
 * now, that usage is the limit.
 */
void maitred_put_memory_limit_back(void);

/* shutdown_functions.c */
/* The boot has ended: those registered until now are not of a client. */
void maitred_shutdown_functions_of_boot(void);
/* A request begins: those registered since the boot are of others. */
void maitred_shutdown_functions_of_earlier(void);
/* Calls, and forgets, those of the boot and of the current request. */
void maitred_call_functions_of_request(void);

/* timers.c */
void maitred_timers_after_fork(void);

/* folder.c */
void maitred_folder_enter(const char *script, size_t length);
void maitred_folder_return(void);
void maitred_folder_leave(bool seen);

/* Whether requests start and end in the process' initial directory, unless a folder is set. */
bool maitred_keeps_folder(void);

#endif
