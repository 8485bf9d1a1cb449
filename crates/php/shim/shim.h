/*
 * The interface between Rust and PHP. No Zend type crosses it.
 *
 * Two rules hold everywhere:
 *
 * - a PHP bailout (longjmp) never crosses a Rust frame: callbacks only report a verdict, and C acts
 *   on it after the callback has returned;
 * - a Rust panic never crosses a C frame: every callback catches it and returns its declared
 *   default.
 *
 * Strings that Rust passes to C as `const char *` are NUL-terminated and valid until the call
 * returns.
 */
#ifndef MAITRED_SHIM_H
#define MAITRED_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Buffer sizes for the name of a function or class, and for the path of a file, with the NUL. */
#define MAITRED_NAME_BYTES 256
#define MAITRED_PATH_BYTES 1024

/* What a callback reports about the client. */
enum maitred_verdict {
	MAITRED_CONTINUE = 0,
	MAITRED_CLIENT_GONE = 1,
};

/* How a request ended. After anything but MAITRED_FINISHED the process must serve no other request.
 */
enum maitred_outcome {
	MAITRED_FINISHED = 0,
	MAITRED_BAILOUT_FATAL = 1,
	MAITRED_BAILOUT_CLIENT_GONE = 2,
	MAITRED_STARTUP_FAILED = 3,
};

/* Log levels, those of php-fpm (zlog.h). */
enum maitred_level {
	MAITRED_DEBUG = 0,
	MAITRED_NOTICE = 1,
	MAITRED_WARNING = 2,
	MAITRED_ERROR = 3,
};

/* php-fpm's checks before a script is opened. */
enum maitred_admission {
	MAITRED_ADMITTED = 0,
	MAITRED_NO_METHOD = 1,      /* no script runs, and the response is empty */
	MAITRED_NO_SCRIPT = 2,      /* 404 */
	MAITRED_EXTENSION = 3,      /* 403: security.limit_extensions */
};

/* One CGI variable. The name consists of [A-Z0-9_]; neither string contains a NUL. */
struct maitred_param {
	const char *name;
	size_t name_length;
	const char *value;
	size_t value_length;
};

/*
 * A request. A missing variable is NULL; `content_type` and `query_string` then are "". In a
 * `foreign` request, which comes from a web server over FastCGI, the last five fields have been
 * derived from its variables by php-fpm's rules.
 */
struct maitred_request {
	void *exchange;
	const struct maitred_param *params;
	size_t param_count;
	const char *method;
	const char *script_name;
	const char *path_info;
	const char *script_filename;
	const char *query_string;
	const char *content_type;
	const char *cookie;
	const char *authorization;
	const char *document_root;
	const char *server_name;
	const char *php_value;          /* PHP_VALUE; not `foreign`: the settings of .htaccess files */
	const char *php_admin_value;    /* PHP_ADMIN_VALUE; for `foreign` requests only */
	int64_t content_length;
	bool foreign;
	int admission;                  /* enum maitred_admission */
	const char *path_translated;    /* the script's file */
	const char *request_uri;        /* as in php-fpm: the script's path, without query */
	const char *body_file;          /* REQUEST_BODY_FILE */
};

/* The result of a request. */
struct maitred_served {
	int outcome;            /* enum maitred_outcome */
	int response_status;    /* HTTP status of the response */
	bool client_gone;       /* a callback reported it while the script ran */
	bool spent;             /* the request has changed this process irreversibly */
	bool renew;             /* the script says that the scripts in memory are outdated */
	bool cache_full;        /* a booted script has found OPcache full */
	bool conflicts;         /* the script declares a name that may be a preloaded class */
	size_t peak_memory;     /* peak bytes that the engine's allocator took from the system */
};

/* The result of a worker script. */
struct maitred_worked {
	struct maitred_served last;     /* of the running request, or else of the script */
	bool booted;                    /* it has waited for a request */
	bool in_hand;                   /* it ended while handling one */
};

/* Bytes; `start` is never NULL. */
struct maitred_text {
	const char *start;
	size_t length;
};

/* The result of a purge by a script. */
enum maitred_purged {
	MAITRED_PURGE_UNHEARD = 0,
	MAITRED_PURGED = 1,
	MAITRED_PURGE_NO_CACHE = 2,
	MAITRED_PURGE_NOT_ITS = 3,
	MAITRED_PURGE_TOO_LONG = 4,
};

/* Instead of a number of bytes: the rest of the body will not arrive. */
#define MAITRED_BODY_CUT ((size_t) -1)

/* Calls from C into Rust. `exchange` is that of the request. Verdicts are enum maitred_verdict. */
struct maitred_callbacks {
	int (*send)(void *exchange, const char *bytes, size_t length);
	int (*flush)(void *exchange);
	void (*finish)(void *exchange);
	/* 0 at the end of the body; MAITRED_BODY_CUT if its rest will not arrive. */
	size_t (*read_body)(void *exchange, char *buffer, size_t capacity);
	/* `level` is enum maitred_level; `to_client`: fastcgi.logging is on. */
	void (*log)(void *exchange, int level, bool to_client, const char *message, size_t length);
	/* The result of fpm_get_status() as JSON, valid until the next callback; NULL: none. */
	const char *(*status)(void *exchange);
	/* Early hints: header lines, each with its CR LF, and an empty one. */
	int (*hint)(void *exchange, const char *lines, size_t length);
	/* Purges pages by tags or URLs; returns enum maitred_purged. */
	int (*purge)(
		void *exchange, bool urls, bool soft, const struct maitred_text *names, size_t count);
	/*
	 * A worker script waits for a request; NULL if the script is to end. The request is valid until
	 * the script has answered it.
	 */
	const struct maitred_request *(*next)(void *exchange);
	/* The request is answered. The client waits for nothing that the script does afterwards. */
	void (*answered)(void *exchange, const struct maitred_served *served);
	/*
	 * The application is booted, and copies of this process may serve it, unless `why` gives a
	 * reason against it. Returns true in a copy, which then waits for requests (`next`), and false
	 * where the script cannot continue.
	 */
	bool (*freeze)(void *exchange, const char *why);
};

/* Memory of another process. `read` returns false when not all of it could be read. */
struct maitred_memory {
	void *context;
	bool (*read)(void *context, uint64_t address, void *into, size_t length);
};

/* The type of a frame, and so its format: function(), Class::function(), Class->function(). */
enum maitred_frame_kind {
	MAITRED_FRAME_FUNCTION = 0,
	MAITRED_FRAME_STATIC = 1,
	MAITRED_FRAME_METHOD = 2,
	MAITRED_FRAME_INCLUDE = 3,
	MAITRED_FRAME_MAIN = 4,
};

/*
 * One call. The strings are NUL-terminated and truncated; `file` and `line` are its current
 * position.
 */
struct maitred_frame {
	uint64_t address;
	uint32_t line;
	uint8_t kind;           /* enum maitred_frame_kind */
	bool has_file;          /* false for functions that are not written in PHP */
	char class_name[MAITRED_NAME_BYTES];
	char function[MAITRED_NAME_BYTES];
	char file[MAITRED_PATH_BYTES];
};

/* Where the walk ended: at the end of the stack, at the wanted depth, or at inconsistent data. */
enum maitred_stack_end {
	MAITRED_STACK_WHOLE = 0,
	MAITRED_STACK_CUT = 1,
	MAITRED_STACK_BROKEN = 2,
};

/* A stack, innermost call first. Rust sets `frames`, `capacity`, `wanted` and `calls_only`. */
struct maitred_stack {
	struct maitred_frame *frames;
	size_t capacity;        /* size of `frames` */
	size_t wanted;          /* wanted frames */
	bool calls_only;        /* without files and lines */
	size_t count;           /* frames read: the wanted ones, and the last one's caller */
	int end;                /* enum maitred_stack_end */
	char script[MAITRED_PATH_BYTES];
};

/* The result of applying a value of the pool. */
enum maitred_value_fate {
	MAITRED_APPLIED = 0,
	MAITRED_UNKNOWN = 1,    /* PHP has no such directive */
	MAITRED_REFUSED = 2,    /* the directive rejects the value */
};

/* php_value (admin = false) and php_admin_value (admin = true). C writes `fate`. */
struct maitred_ini_value {
	const char *name;
	const char *value;
	bool admin;
	int fate;               /* enum maitred_value_fate */
};

/* How scripts are run. Applications detect it with function_exists(). */
enum maitred_mode {
	MAITRED_CLASSIC,        /* each request runs its script from the start */
	MAITRED_WORKER,         /* a script takes one request after the other */
	MAITRED_SNAPSHOT,       /* a script is booted once and copied */
};

struct maitred_settings {
	const char *sapi_name;          /* php_sapi_name() */
	const char *executable;         /* PHP_BINARY is derived from it; may be NULL */
	const char *ini_path;           /* a php.ini, or the folder of one; NULL: libphp's own */
	const char *ini_entries;        /* php.ini text that overrides the files */
	const char *preload;            /* text of the script of opcache.preload; NULL: none */
	struct maitred_ini_value *values;
	size_t value_count;
	bool no_ini_files;              /* search no php.ini */
	bool fpm;                       /* PHP presents itself as in php-fpm */
	int mode;                       /* enum maitred_mode */
};

/* Directives that decide how a web server's variables are interpreted. */
struct maitred_path_directives {
	bool fix_pathinfo;
	bool discard_path;
	bool decodes_path;              /* Apache's, also that of SetHandler, which is not encoded */
	bool decodes_path_info;         /* only the part of it after the script, with ProxyPass */
	const char *doc_root;           /* NULL: none */
};

/*
 * `callbacks` and the strings of `settings` must live as long as the process. Returns false when
 * PHP did not start.
 */
bool maitred_php_start(
	const struct maitred_settings *settings, const struct maitred_callbacks *callbacks);

/*
 * Sets PHP's working directory, outside a request: clears the realpath cache, whose paths may be
 * other files since the process has changed its root, and changes to `folder`, in which every
 * request starts and ends; NULL: the directory of the previous request. Returns 0 or an error
 * number.
 */
int maitred_php_settle(const char *folder);

/* In a forked child, outside a request: renews the state that siblings must not share. */
void maitred_php_after_fork(void);

/*
 * Applies the settings that come with the request, until maitred_php_serve ends. Must be followed
 * by that call; returns false when PHP could not continue, and then must not be.
 */
bool maitred_php_prepare(const struct maitred_request *request);

/* The current directives. `doc_root` is valid until PHP is called again. */
void maitred_php_path_directives(struct maitred_path_directives *directives);

/*
 * Whether a path exists, by PHP's realpath cache (realpath_cache_ttl); while a script runs, by the
 * file system. Never bails out then.
 */
bool maitred_php_resolves(const char *path);

/* Peak memory of the running request, in bytes; 0 when there is none. */
size_t maitred_php_peak_memory(void);

/* The number of requests that this process has started, before the next one. */
void maitred_php_count_requests(uint64_t started);

/* PHP's cache of real paths in this process, in bytes. */
struct maitred_realpath_cache {
	uint64_t used;
	uint64_t limit;             /* realpath_cache_size; with open_basedir, none of it is used */
};

struct maitred_realpath_cache maitred_php_realpath_cache(void);

/* The status of its response so far; 0 when there is none. */
int maitred_php_response_status(void);

/* The exit status of a program in its place: 255 after a fatal error; 0 when there is no request.
 */
int maitred_php_exit_status(void);

/* Serves one request. All bailouts are caught inside. */
void maitred_php_serve(const struct maitred_request *request, struct maitred_served *served);

/*
 * Runs a worker script, which takes requests until there are none (`next`). `boot` is its request
 * until the first one; the exchange is the same for all. Once in a process, which serves nothing
 * else. All bailouts are caught inside.
 */
void maitred_php_work(const struct maitred_request *boot, struct maitred_worked *worked);

/*
 * Runs a script that boots an application for copies of this process: until it calls
 * maitred_snapshot(), or until there are no more warm-up requests (`next`). It continues in the
 * copies.
 */
void maitred_php_boot(const struct maitred_request *boot, struct maitred_worked *worked);

/* For a booted application: the process that is copied shares memory with a child, in which the
 * child lists at its end the regular expressions that it has compiled, and reads the list when the
 * child has exited. In the process that is copied, while its script runs. None of them bails out.
 */
void maitred_php_patterns_share(void);
void maitred_php_patterns_tell(void);
void maitred_php_patterns_learn(void);

/* Receives one script: its full path, and its hits in the cache. */
typedef void maitred_script_visitor(
	void *context, const char *path, size_t path_length, uint64_t hits);

/*
 * Calls `visit` for every script in OPcache: none when there is no OPcache, when it is off, and
 * when it has no shared memory. In a forked child, outside a request. Returns false when PHP
 * failed; the process must not continue then.
 */
bool maitred_php_cached_scripts(maitred_script_visitor *visit, void *context);

/* OPcache statistics; `raw/opcache.rs` has the same struct. Memory is in bytes. */
struct maitred_cache_figures {
	uint64_t used;              /* memory in use */
	uint64_t free;
	uint64_t wasted;            /* memory of outdated scripts */
	uint64_t scripts;
	uint64_t hits;
	uint64_t misses;
	uint64_t oom_restarts;      /* restarts because memory ran out */
	uint64_t hash_restarts;     /* … because keys ran out */
	uint64_t manual_restarts;   /* … because of opcache_reset() */
	uint64_t keys;              /* in use; a script may have several */
	uint64_t all_keys;
	uint64_t strings;           /* interned string memory in use; part of the memory */
	uint64_t all_strings;
	bool full;                  /* the next script finds no memory, or no key */
	bool strings_full;          /* new strings are stored with the scripts */
};

/*
 * Reads the OPcache statistics. In a forked child, outside a request. Returns false when OPcache
 * has no shared memory or is off, and when PHP failed.
 */
bool maitred_php_cache_figures(struct maitred_cache_figures *figures);

/* The same during a suspended request (maitred_snapshot()). */
bool maitred_php_cache_figures_within(struct maitred_cache_figures *figures);

/* The result of compiling a script. */
enum maitred_compiled {
	MAITRED_COMPILED = 0,       /* OPcache has stored it */
	MAITRED_PASSED_OVER = 1,    /* already cached, not compilable, ambiguous, or too large */
	MAITRED_EXHAUSTED = 2,      /* PHP could not continue; nor must the process */
};

/*
 * Puts a script of `bytes` bytes (0: unknown) into OPcache. It is not executed, its declarations
 * are dropped, and nothing is logged. In a forked child, outside a request. Returns enum
 * maitred_compiled.
 */
int maitred_php_compile_script(const char *path, size_t bytes);

/*
 * Writes the lower-case names of the classes that a script declares to `names`, each followed by a
 * newline, as far as there is room. `alone`: it is one class at the top level, and the script does
 * nothing else. In a forked child, outside a request. Returns the length of the names; 0 also where
 * php.ini has `opcache.preload`; -1 when PHP failed, and the process must not continue.
 */
int maitred_php_declared_classes(const char *path, char *names, size_t capacity, bool *alone);

/*
 * Reports scripts that outdate a preloaded class, or conflict with one, from now on (`renew`,
 * `conflicts`). Returns the number of preloaded classes. Once, before the first request.
 */
uint32_t maitred_php_watch_preloaded(void);

/* Whether OPcache looks for changes of scripts. */
bool maitred_php_validates_scripts(void);

/*
 * The number of requests that another process has started, which must be a fork of this one, and
 * whether the last one is running. 0: it could not be read.
 */
uint64_t maitred_php_running_request(const struct maitred_memory *memory, bool *is_running);

/*
 * Has the workers that this process will fork say in shared memory that they use OPcache, instead
 * of locking `file`, the file of OPcache's locks. After the start, outside a request. False leaves
 * all as it was: without OPcache, or where it is not as expected.
 */
bool maitred_php_share_opcache_lock(int file, uint32_t workers);

/* In the forked worker of this number, before its first request. */
void maitred_php_take_opcache_lock(uint32_t worker);

/*
 * An address within OPcache's shared memory, if PHP has been started with OPcache: that is where
 * OPcache moves the names that the engine knows. NULL or any other address without it.
 */
const void *maitred_php_opcache_address(void);

/*
 * Reads the stack of the script that runs in another process, which must be a fork of this one.
 * Needs no started engine, and modifies nothing but `stack`.
 */
void maitred_php_trace(const struct maitred_memory *memory, struct maitred_stack *stack);

/* The file and line in which the boot of an application connected this descriptor; NULL if unknown.
 */
const char *maitred_php_connected_at(int descriptor, uint32_t *line);

/*
 * Whether libphp's calls of chdir() etc. reach the shim, that is, whether the program exports its
 * symbols.
 */
bool maitred_php_interposed(void);

/* The information that maitred_php_show() can print. */
enum maitred_show {
	MAITRED_SHOW_VERSION = 0,
	MAITRED_SHOW_MODULES = 1,
	MAITRED_SHOW_INFO = 2,
};

/*
 * Prints information (enum maitred_show) to standard output, as php-fpm's -v, -m and -i do. The
 * process serves no request afterwards. Returns false when PHP failed.
 */
bool maitred_php_show(int what);

/*
 * The value of a name in php.ini, its additional files or -d, known to PHP or not, or NULL. Valid
 * as long as the engine runs.
 */
const char *maitred_php_configured(const char *name);

/* The value of `fpm.config` in php.ini, or NULL. */
const char *maitred_php_fpm_config(void);

/* Whether responses name the PHP version (expose_php). */
bool maitred_php_is_exposed(void);

/*
 * Makes a value a directive's default, which scripts and .user.ini may change. False if PHP does
 * not know it or rejects the value. After the start, outside a request.
 */
bool maitred_php_set_default(const char *name, const char *value);

/* PHP_VERSION of the loaded libphp, which may be newer than the shim's headers. */
const char *maitred_php_version(void);

/* PHP_VERSION of the shim's headers. */
const char *maitred_php_built(void);

/* PHP_VERSION of the loaded libphp, also before it is started, with what follows it in the library;
 * empty if it is not found. Writes at most `size` bytes, and a NUL. */
void maitred_php_loaded(char *version, size_t size);

/* Where libphp is in memory. Addresses without `base` are relative to it. */
struct maitred_library {
	uintptr_t base;
	/* The end of its last segment. */
	uintptr_t end;
	/* The largest executable segment. */
	uintptr_t code;
	size_t code_bytes;
	/* What the dynamic linker has made read-only after relocation (PT_GNU_RELRO). */
	uintptr_t constant;
	size_t constant_bytes;
	/* Its GNU build id; NULL: none. */
	const unsigned char *build_id;
	size_t build_id_bytes;
};

/* Also before PHP is started; all zero if libphp is not found. */
void maitred_php_library(struct maitred_library *library);

/*
 * Replaces mapped code, from the start of a page on, by the first bytes of a file that has the same
 * code and never changes. Returns false with the code unchanged.
 */
bool maitred_php_replace_text(uintptr_t start, size_t bytes, int file);

/* Has the kernel join the pages of an anonymous file to huge pages, where it can. */
void maitred_php_join_pages(int file, size_t bytes);

/* Shuts the engine down in the process that started it; never called in a forked child. */
void maitred_php_stop(void);

#endif
