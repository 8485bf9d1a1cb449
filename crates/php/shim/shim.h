/*
 * The whole contract between Rust and PHP. No Zend type crosses it.
 *
 * Two rules hold everywhere:
 *   - a PHP bailout (longjmp) never crosses a Rust frame: callbacks only report a verdict, and C
 *     acts on it after the callback has returned;
 *   - a Rust panic never crosses a C frame: every callback catches it and returns its declared
 *     default.
 *
 * Strings handed to C as `const char *` are NUL-terminated and live until the call they came with
 * returns.
 */
#ifndef MAITRED_SHIM_H
#define MAITRED_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for a name of a function or a class, and for the path of a file, with the NUL at its end. */
#define MAITRED_NAME_BYTES 256
#define MAITRED_PATH_BYTES 1024

/* What a callback tells C about the client. */
enum maitred_verdict {
	MAITRED_CONTINUE = 0,
	MAITRED_CLIENT_GONE = 1,
};

/* How a request ended. After anything but MAITRED_FINISHED the process must serve no other. */
enum maitred_outcome {
	MAITRED_FINISHED = 0,
	MAITRED_BAILOUT_FATAL = 1,
	MAITRED_BAILOUT_CLIENT_GONE = 2,
	MAITRED_STARTUP_FAILED = 3,
};

/* How important a message is, as php-fpm's log has it (zlog.h). */
enum maitred_level {
	MAITRED_DEBUG = 0,
	MAITRED_NOTICE = 1,
	MAITRED_WARNING = 2,
	MAITRED_ERROR = 3,
};

/* What may become of a request before its script is opened, as php-fpm decides it. */
enum maitred_admission {
	MAITRED_ADMITTED = 0,
	MAITRED_NO_METHOD = 1,      /* nothing is run, and an empty answer given */
	MAITRED_NO_SCRIPT = 2,      /* 404 */
	MAITRED_EXTENSION = 3,      /* 403: security.limit_extensions */
};

/* One CGI variable. The name holds [A-Z0-9_] only; neither string contains a NUL before its end. */
struct maitred_param {
	const char *name;
	size_t name_length;
	const char *value;
	size_t value_length;
};

/*
 * A request. A missing variable is NULL; `content_type` and `query_string` then are "". If it is
 * `foreign`, a web server's own, php-fpm's rules have made the last five fields of its variables.
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
	const char *php_value;          /* PHP_VALUE */
	const char *php_admin_value;    /* PHP_ADMIN_VALUE */
	int64_t content_length;
	bool foreign;
	int admission;                  /* enum maitred_admission */
	const char *path_translated;    /* the script's file */
	const char *request_uri;        /* what php-fpm calls so: a script's path, without query */
	const char *body_file;          /* REQUEST_BODY_FILE */
};

/* What is known of a request after it. */
struct maitred_served {
	int outcome;            /* enum maitred_outcome */
	int response_status;    /* HTTP status of the answer */
	bool client_gone;       /* a callback said so while the script ran */
	bool spent;             /* what came with it has changed this process for good */
	bool renew;             /* the scripts in memory are outdated, the script says */
	bool cache_full;        /* a booted script has found OPcache full */
	size_t peak_memory;     /* bytes the engine's allocator took from the system, at most */
};

/* What is known of a worker script after it. */
struct maitred_worked {
	struct maitred_served last;     /* of the request in hand, or else of the script itself */
	bool booted;                    /* it has asked for a request */
	bool in_hand;                   /* it ended while it handled one */
};

/* fpm_get_status()["procs"][n]; durations in microseconds, CPU in per cent. */
struct maitred_process_status {
	int64_t pid;
	const char *state;
	int64_t start_time;
	int64_t start_since;
	int64_t requests;
	int64_t request_duration;
	const char *request_method;
	const char *request_uri;
	const char *query_string;
	int64_t request_length;
	const char *user;
	const char *script;
	double last_request_cpu;
	int64_t last_request_memory;
};

/* fpm_get_status(). Owned by Rust; valid until the next callback. */
struct maitred_pool_status {
	const char *pool;
	const char *process_manager;
	int64_t start_time;
	int64_t start_since;
	int64_t accepted_conn;
	int64_t listen_queue;
	int64_t max_listen_queue;
	int64_t listen_queue_len;
	int64_t idle_processes;
	int64_t active_processes;
	int64_t total_processes;
	int64_t max_active_processes;
	int64_t max_children_reached;
	int64_t slow_requests;
	const struct maitred_process_status *processes;
	size_t process_count;
};

/* Bytes; `start` is never NULL. */
struct maitred_text {
	const char *start;
	size_t length;
};

/* What came of a script's wish to have pages dropped. */
enum maitred_purged {
	MAITRED_PURGE_UNHEARD = 0,
	MAITRED_PURGED = 1,
	MAITRED_PURGE_NO_CACHE = 2,
	MAITRED_PURGE_NOT_ITS = 3,
	MAITRED_PURGE_TOO_LONG = 4,
};

/* Calls from C into Rust. `exchange` is the request's own. Verdicts are enum maitred_verdict. */
struct maitred_callbacks {
	int (*send)(void *exchange, const char *bytes, size_t length);
	int (*flush)(void *exchange);
	void (*finish)(void *exchange);
	size_t (*read_body)(void *exchange, char *buffer, size_t capacity);
	/* `level` is enum maitred_level; `to_client`: fastcgi.logging is on. */
	void (*log)(void *exchange, int level, bool to_client, const char *message, size_t length);
	const struct maitred_pool_status *(*status)(void *exchange);
	/* Early hints: header lines, each with its CR LF, and an empty one. */
	int (*hint)(void *exchange, const char *lines, size_t length);
	/* Has pages with these tags, or at these addresses, dropped; enum maitred_purged. */
	int (*purge)(
		void *exchange, bool urls, bool soft, const struct maitred_text *names, size_t count);
	/*
	 * A worker script asks for a request: waits for one, or returns NULL when the script is to end.
	 * The request stays as it is until it is answered.
	 */
	const struct maitred_request *(*next)(void *exchange);
	/* It has handled the request; whatever it does until it asks for another, nobody waits for. */
	void (*answered)(void *exchange, const struct maitred_served *served);
	/*
	 * The application is booted, and copies of this process may serve it, unless `why` says that
	 * they must not. Returns true in a copy, which then asks for its requests (`next`), and false
	 * where the script cannot go on.
	 */
	bool (*freeze)(void *exchange, const char *why);
};

/* Memory of another process. `read` returns false when not all of it could be read. */
struct maitred_memory {
	void *context;
	bool (*read)(void *context, uint64_t address, void *into, size_t length);
};

/* What a frame is, and so how it is written: function(), Class::function(), Class->function(). */
enum maitred_frame_kind {
	MAITRED_FRAME_FUNCTION = 0,
	MAITRED_FRAME_STATIC = 1,
	MAITRED_FRAME_METHOD = 2,
	MAITRED_FRAME_INCLUDE = 3,
	MAITRED_FRAME_MAIN = 4,
};

/* One call. The strings end with a NUL and are cut to fit; `file` and `line` are where it is now. */
struct maitred_frame {
	uint64_t address;
	uint32_t line;
	uint8_t kind;           /* enum maitred_frame_kind */
	bool has_file;          /* false for functions that are not written in PHP */
	char class_name[MAITRED_NAME_BYTES];
	char function[MAITRED_NAME_BYTES];
	char file[MAITRED_PATH_BYTES];
};

/* How far a stack was read: to its end, as far as was wanted, or until something made no sense. */
enum maitred_stack_end {
	MAITRED_STACK_WHOLE = 0,
	MAITRED_STACK_CUT = 1,
	MAITRED_STACK_BROKEN = 2,
};

/* A stack, the innermost call first. Rust sets `frames`, `capacity` and `wanted`. */
struct maitred_stack {
	struct maitred_frame *frames;
	size_t capacity;        /* frames there is room for */
	size_t wanted;          /* frames that are wanted */
	size_t count;           /* frames that were read; with the wanted ones, who called the last */
	uint64_t request;       /* how many requests the process has begun; 0: it cannot be read */
	bool is_running;        /* the last of them is in hand */
	int end;                /* enum maitred_stack_end */
	char script[MAITRED_PATH_BYTES];
};

/* What became of a value of the pool. */
enum maitred_value_fate {
	MAITRED_APPLIED = 0,
	MAITRED_UNKNOWN = 1,    /* PHP has no such directive */
	MAITRED_REFUSED = 2,    /* the directive does not take the value */
};

/* php_value (admin = false) and php_admin_value (admin = true). C writes `fate`. */
struct maitred_ini_value {
	const char *name;
	const char *value;
	bool admin;
	int fate;               /* enum maitred_value_fate */
};

/* How scripts are run. Applications ask with function_exists() which it is. */
enum maitred_mode {
	MAITRED_CLASSIC,        /* each request runs its script from the beginning */
	MAITRED_WORKER,         /* a script asks for one request after the other */
	MAITRED_SNAPSHOT,       /* a script is booted once and copied */
};

struct maitred_settings {
	const char *sapi_name;          /* php_sapi_name() */
	const char *executable;         /* PHP_BINARY is derived from it; may be NULL */
	const char *ini_path;           /* a php.ini, or the folder of one; NULL: libphp's own */
	const char *ini_entries;        /* php.ini text that overrides the files */
	struct maitred_ini_value *values;
	size_t value_count;
	bool no_ini_files;              /* no php.ini is looked for */
	bool fpm;                       /* PHP has and shows what it has and shows in php-fpm */
	int mode;                       /* enum maitred_mode */
};

/* Directives that decide what a web server's variables mean. */
struct maitred_path_directives {
	bool fix_pathinfo;
	bool discard_path;
	const char *doc_root;           /* NULL: none */
};

/*
 * `callbacks` and the strings of `settings` must live as long as the process. Returns false when
 * PHP did not start.
 */
bool maitred_php_start(
	const struct maitred_settings *settings, const struct maitred_callbacks *callbacks);

/*
 * Where PHP lives from now on, outside a request: forgets what paths led to, which may be other
 * files since the process has changed its root, and moves to `folder`, in which every request
 * starts and ends; NULL: wherever the last one was. Returns 0 or an error number.
 */
int maitred_php_settle(const char *folder);

/* In a forked child, outside a request: what PHP must not share with its siblings. */
void maitred_php_after_fork(void);

/*
 * Sets what PHP_VALUE and PHP_ADMIN_VALUE of the request say, until maitred_php_serve ends. Must be
 * followed by that; returns false when PHP could not go on, and then must not be.
 */
bool maitred_php_prepare(const struct maitred_request *request);

/* As the directives are now. `doc_root` is valid until PHP is called again. */
void maitred_php_path_directives(struct maitred_path_directives *directives);

/*
 * Whether a path leads to something, as PHP remembers it (realpath_cache_ttl); while a script runs, as
 * it is. Never bails out then.
 */
bool maitred_php_resolves(const char *path);

/* The most memory of the request in hand, in bytes; 0 when there is none. */
size_t maitred_php_peak_memory(void);

/* The status of its answer so far; 0 when there is none. */
int maitred_php_response_status(void);

/* What a program would have exited with: 255 after a fatal error; 0 when there is no request. */
int maitred_php_exit_status(void);

/* Serves one request. All bailouts are caught inside. */
void maitred_php_serve(const struct maitred_request *request, struct maitred_served *served);

/*
 * Runs a worker script, which asks for requests until there are none any more (`next`). `boot` is
 * what it is to see as its request while it boots; the exchange is the same for all. Once in a
 * process, which serves nothing else. All bailouts are caught inside.
 */
void maitred_php_work(const struct maitred_request *boot, struct maitred_worked *worked);

/*
 * Runs a script that boots an application for copies of this process: until it calls
 * maitred_snapshot(), or there is no request any more that is asked ahead of clients (`next`). Goes
 * on in the copies.
 */
void maitred_php_boot(const struct maitred_request *boot, struct maitred_worked *worked);

/*
 * Of a booted application: the process that is copied shares memory with a child, in which the child
 * tells at its end which regular expressions it has compiled, and learns of it when the child has ended.
 * In the process that is copied, while its script runs. None of them bails out.
 */
void maitred_php_patterns_share(void);
void maitred_php_patterns_tell(void);
void maitred_php_patterns_learn(void);

/* Takes one script: its full path, and how often it was found in the cache. */
typedef void maitred_script_visitor(
	void *context, const char *path, size_t path_length, uint64_t hits);

/*
 * Shows `visit` every script that OPcache holds: none when there is no OPcache, when it is off, and
 * when it has no shared memory. In a forked child, outside a request. Returns false when PHP could
 * not do it; the process must not go on then.
 */
bool maitred_php_cached_scripts(maitred_script_visitor *visit, void *context);

/* How OPcache is doing; `raw/cache.rs` has the same. Memory is in bytes. */
struct maitred_cache_figures {
	uint64_t used;              /* memory that holds something */
	uint64_t free;
	uint64_t wasted;            /* memory that held what is outdated */
	uint64_t scripts;
	uint64_t hits;
	uint64_t misses;
	uint64_t oom_restarts;      /* it threw all away, for it was out of memory */
	uint64_t hash_restarts;     /* … out of keys */
	uint64_t manual_restarts;   /* … since somebody called opcache_reset */
	uint64_t keys;              /* that are in use: a script may have several */
	uint64_t all_keys;
	uint64_t strings;           /* room for strings that is in use; it is part of the memory */
	uint64_t all_strings;
	bool full;                  /* what is wanted next finds no memory, or no key */
	bool strings_full;          /* strings take the memory of scripts */
};

/*
 * Tells how OPcache is doing. In a forked child, outside a request. Returns false when there is no
 * OPcache with shared memory that is on, and when PHP could not do it.
 */
bool maitred_php_cache_figures(struct maitred_cache_figures *figures);

/* The same, in the middle of a request that stands still (maitred_snapshot()). */
bool maitred_php_cache_figures_within(struct maitred_cache_figures *figures);

/* What became of a script that was to be compiled. */
enum maitred_compiled {
	MAITRED_COMPILED = 0,       /* OPcache holds it now, and did not before */
	MAITRED_PASSED_OVER = 1,    /* it was there, cannot be compiled, may be read in two ways,
	                               or does not fit */
	MAITRED_EXHAUSTED = 2,      /* PHP could not go on; the process must not either */
};

/*
 * Puts a script of `bytes` bytes (0: not known) into OPcache. Nothing of it is executed, nothing it
 * declares stays declared, and nothing is said. In a forked child, outside a request. Returns enum
 * maitred_compiled.
 */
int maitred_php_compile_script(const char *path, size_t bytes);
/*
 * Reads the stack of the script that runs in another process, which must be a fork of this one.
 * Needs no started engine, and touches nothing but `stack`.
 */
void maitred_php_trace(const struct maitred_memory *memory, struct maitred_stack *stack);

/*
 * The file and the line in which the boot of an application has connected this descriptor to somebody;
 * NULL: that is not known.
 */
const char *maitred_php_connected_at(int descriptor, uint32_t *line);

/* Whether libphp's `chdir` reaches the shim, that is: whether the program exports its symbols. */
bool maitred_php_interposed(void);

/* What can be shown of PHP. */
enum maitred_show {
	MAITRED_SHOW_VERSION = 0,
	MAITRED_SHOW_MODULES = 1,
	MAITRED_SHOW_INFO = 2,
};

/*
 * Prints something of PHP (enum maitred_show) on standard output, as php-fpm's -v, -m and -i do. The
 * process serves nobody afterwards. Returns false when PHP could not do it.
 */
bool maitred_php_show(int what);

/*
 * What php.ini, its further files or -d say of a name, known to PHP or not, or NULL. Good as long as
 * the engine runs.
 */
const char *maitred_php_configured(const char *name);

/* The value of `fpm.config` in php.ini, or NULL. */
const char *maitred_php_fpm_config(void);

/* Whether answers say which PHP made them (expose_php). */
bool maitred_php_is_exposed(void);

/* PHP_VERSION of the loaded libphp, which may be newer than the headers of the shim. */
const char *maitred_php_version(void);

/* Ends the engine in the process that started it; never called in a forked child. */
void maitred_php_stop(void);

#endif
