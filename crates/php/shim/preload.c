/*
 * Which scripts OPcache may preload. A preloaded class exists in every request from its start, and
 * its file declares nothing any more. So only a script that declares one class at its top level and
 * does nothing else is a candidate: its inclusion then makes no difference.
 */
#include "engine.h"

#include <string.h>

#include <zend_exceptions.h>
#include <zend_vm_opcodes.h>

/* What OPcache sets for its own compilation: classes of other files are not looked up. */
#define ALONE                                                                                      \
	(ZEND_COMPILE_IGNORE_INTERNAL_CLASSES | ZEND_COMPILE_DELAYED_BINDING                       \
		| ZEND_COMPILE_NO_CONSTANT_SUBSTITUTION | ZEND_COMPILE_IGNORE_OTHER_FILES)

struct declaration {
	const char *path;
	char *name;
	size_t capacity;
	size_t length; /* 0: it is no candidate */
};

static bool only_declares(const zend_op_array *code)
{
	uint32_t at;

	for (at = 0; at < code->last; at++) {
		switch (code->opcodes[at].opcode) {
		case ZEND_NOP:
		case ZEND_EXT_STMT:
		case ZEND_DECLARE_CLASS:
		case ZEND_DECLARE_CLASS_DELAYED:
		case ZEND_RETURN:
		case ZEND_HANDLE_EXCEPTION:
			break;
		default:
			return false;
		}
	}
	return true;
}

/* The class that a script has declared in addition to the first `before` ones, if it is only one.
 */
static const zend_class_entry *only_class(uint32_t before)
{
	const zend_class_entry *found = NULL;
	const zend_class_entry *class;
	uint32_t place = 0;

	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (place++ < before || (class->ce_flags & ZEND_ACC_ANON_CLASS)) {
			continue;
		}
		if (found || !(class->ce_flags & ZEND_ACC_TOP_LEVEL)) {
			return NULL;
		}
		found = class;
	} ZEND_HASH_FOREACH_END();
	return found;
}

static void compile_alone(struct declaration *declaration)
{
	uint32_t classes = zend_hash_num_elements(CG(class_table));
	uint32_t functions = zend_hash_num_elements(CG(function_table));
	uint32_t options = CG(compiler_options);
	zend_file_handle file;
	zend_op_array *code;
	const zend_class_entry *class;

	zend_stream_init_filename(&file, declaration->path);
	CG(compiler_options) |= ALONE;
	code = compile_file(&file, ZEND_INCLUDE);
	CG(compiler_options) = options;
	zend_destroy_file_handle(&file);
	if (!code) {
		return;
	}
	class = only_class(classes);
	if (class && ZSTR_LEN(class->name) < declaration->capacity && only_declares(code)
		&& zend_hash_num_elements(CG(function_table)) == functions) {
		declaration->length = ZSTR_LEN(class->name);
		zend_str_tolower_copy(declaration->name, ZSTR_VAL(class->name), declaration->length);
	}
	destroy_op_array(code);
	efree_size(code, sizeof(zend_op_array));
}

static void inspect(void *context)
{
	struct declaration *declaration = context;

	if (!maitred_reads_alike(declaration->path)) {
		return;
	}
	zend_try {
		compile_alone(declaration);
	} zend_catch {
		declaration->length = 0;
	} zend_end_try();
	if (EG(exception)) {
		/* A parse error. */
		zend_clear_exception();
	}
}

int maitred_php_declared_class(const char *path, char *name, size_t capacity)
{
	struct declaration declaration = { path, name, capacity, 0 };
	const char *own = zend_ini_string(ZEND_STRL("opcache.preload"), 0);

	/* What php.ini preloads is the site's own decision. */
	if (!own || *own != '\0') {
		return 0;
	}
	return maitred_in_quiet_request(inspect, &declaration) ? (int) declaration.length : -1;
}

/* The name of the script of opcache.preload; `settings.rs` has it, too. */
static const char script_name[] = "maitred-preload";

void maitred_pass_preload_script(zend_file_handle *file)
{
	size_t length;

	if (EXPECTED(!maitred_engine.preload) || !file->filename
		|| !zend_string_equals_cstr(file->filename, script_name, sizeof(script_name) - 1)) {
		return;
	}
	/* The scanner reads behind the end; zend_file_handle_dtor() frees the copy. */
	length = strlen(maitred_engine.preload);
	file->buf = ecalloc(1, length + ZEND_MMAP_AHEAD);
	memcpy(file->buf, maitred_engine.preload, length);
	file->len = length;
	maitred_engine.preload = NULL;
}

/* The handlers of OPcache's functions. */
static zif_handler reset;
static zif_handler invalidate;

static bool is_preloaded(const zend_class_entry *class)
{
	return class->type == ZEND_USER_CLASS && (class->ce_flags & ZEND_ACC_PRELOADED);
}

static bool has_preloaded(const zend_string *path)
{
	const zend_class_entry *class;

	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (is_preloaded(class) && zend_string_equals(class->info.user.filename, path)) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

/* opcache_reset() leaves preloaded classes as they are. */
static ZEND_NAMED_FUNCTION(reset_and_renew)
{
	reset(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	maitred_engine.renew = true;
}

static ZEND_NAMED_FUNCTION(invalidate_and_renew)
{
	zend_string *path;
	zval *name;

	invalidate(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (EG(exception) || ZEND_CALL_NUM_ARGS(execute_data) == 0) {
		return;
	}
	name = ZEND_CALL_ARG(execute_data, 1);
	path = Z_TYPE_P(name) == IS_STRING ? zend_resolve_path(Z_STR_P(name)) : NULL;
	if (path) {
		maitred_engine.renew |= has_preloaded(path);
		zend_string_release(path);
	}
}

uint32_t maitred_php_watch_preloaded(void)
{
	const zend_class_entry *class;
	uint32_t count = 0;

	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		count += is_preloaded(class);
	} ZEND_HASH_FOREACH_END();
	if (count) {
		maitred_engine.preloads = true;
		reset = maitred_take_over("opcache_reset", reset_and_renew);
		invalidate = maitred_take_over("opcache_invalidate", invalidate_and_renew);
	}
	return count;
}

bool maitred_preloading_conflicts(void)
{
	static const char *const beginnings[] = { "Cannot declare ", "Cannot redeclare " };
	size_t at;

	if (!CG(unclean_shutdown) || !PG(last_error_message)) {
		return false;
	}
	for (at = 0; at < sizeof(beginnings) / sizeof(*beginnings); at++) {
		if (!strncmp(ZSTR_VAL(PG(last_error_message)), beginnings[at], strlen(beginnings[at]))) {
			return true;
		}
	}
	return false;
}

bool maitred_php_validates_scripts(void)
{
	return zend_ini_long(ZEND_STRL("opcache.validate_timestamps"), 0) != 0;
}
