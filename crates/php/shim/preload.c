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

struct declarations {
	const char *path;
	char *names;     /* each in lower case, followed by a newline */
	size_t capacity;
	size_t length;
	bool alone;      /* one class at the top level, and nothing else */
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

/* Adds a name, if there is room for it. */
static bool add_name(struct declarations *declarations, const zend_string *name)
{
	size_t length = ZSTR_LEN(name);

	if (length + 2 > declarations->capacity - declarations->length) {
		return false;
	}
	zend_str_tolower_copy(declarations->names + declarations->length, ZSTR_VAL(name), length);
	declarations->length += length;
	declarations->names[declarations->length++] = '\n';
	return true;
}

/*
 * Adds the names of all classes that a script has declared in addition to the first `before` ones,
 * those that it declares at run time included. Returns whether it is one, at the top level.
 */
static bool add_names(struct declarations *declarations, uint32_t before)
{
	const zend_class_entry *class;
	uint32_t place = 0;
	uint32_t count = 0;
	bool alone = true;

	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (place++ < before || (class->ce_flags & ZEND_ACC_ANON_CLASS)) {
			continue;
		}
		count++;
		alone = add_name(declarations, class->name) && (class->ce_flags & ZEND_ACC_TOP_LEVEL)
			&& alone;
	} ZEND_HASH_FOREACH_END();
	return alone && count == 1;
}

static void compile_alone(struct declarations *declarations)
{
	uint32_t classes = zend_hash_num_elements(CG(class_table));
	uint32_t functions = zend_hash_num_elements(CG(function_table));
	uint32_t options = CG(compiler_options);
	zend_file_handle file;
	zend_op_array *code;

	zend_stream_init_filename(&file, declarations->path);
	CG(compiler_options) |= ALONE;
	code = compile_file(&file, ZEND_INCLUDE);
	CG(compiler_options) = options;
	zend_destroy_file_handle(&file);
	if (!code) {
		return;
	}
	declarations->alone = add_names(declarations, classes) && only_declares(code)
		&& zend_hash_num_elements(CG(function_table)) == functions;
	destroy_op_array(code);
	efree_size(code, sizeof(zend_op_array));
}

static void inspect(void *context)
{
	struct declarations *declarations = context;
	bool alike = maitred_reads_alike(declarations->path);

	zend_try {
		compile_alone(declarations);
	} zend_catch {
		declarations->alone = false;
	} zend_end_try();
	declarations->alone = declarations->alone && alike;
	if (EG(exception)) {
		/* A parse error. */
		zend_clear_exception();
	}
}

int maitred_php_declared_classes(const char *path, char *names, size_t capacity, bool *alone)
{
	struct declarations declarations = { path, names, capacity, 0, false };
	const char *own = zend_ini_string(ZEND_STRL("opcache.preload"), 0);
	bool ended;

	*alone = false;
	/* What php.ini preloads is the site's own decision. */
	if (!own || *own != '\0') {
		return 0;
	}
	ended = maitred_in_quiet_request(inspect, &declarations);
	*alone = declarations.alone;
	return ended && !maitred_is_exhausted() ? (int) declarations.length : -1;
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

/* Whether the class in a message such as "Cannot declare class NAME, because …" is preloaded. */
static bool is_about_preloaded(const char *name)
{
	size_t length = strcspn(name, ", (");
	zend_string *key = zend_string_init(name, length, 0);
	zend_string *lower = zend_string_tolower(key);
	const zend_class_entry *class = zend_hash_find_ptr(CG(class_table), lower);

	zend_string_release(lower);
	zend_string_release(key);
	return class && is_preloaded(class);
}

bool maitred_preloading_conflicts(void)
{
	static const char *const verbs[] = { "Cannot declare ", "Cannot redeclare " };
	static const char *const kinds[] = { "class ", "interface ", "trait ", "enum " };
	const char *message;

	if (!CG(unclean_shutdown) || !PG(last_error_message)) {
		return false;
	}
	message = ZSTR_VAL(PG(last_error_message));
	for (size_t verb = 0; verb < sizeof(verbs) / sizeof(*verbs); verb++) {
		size_t begin = strlen(verbs[verb]);

		if (strncmp(message, verbs[verb], begin)) {
			continue;
		}
		for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
			size_t length = strlen(kinds[kind]);

			if (!strncmp(message + begin, kinds[kind], length)) {
				return is_about_preloaded(message + begin + length);
			}
		}
	}
	return false;
}

bool maitred_php_validates_scripts(void)
{
	return zend_ini_long(ZEND_STRL("opcache.validate_timestamps"), 0) != 0;
}
