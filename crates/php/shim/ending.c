/*
 * How a copy of a booted application ends its request. Its process exits next, or is rewound, so no
 * memory of the script needs to be freed, and freeing costs: the boot's memory is shared with other
 * copies until it is written, and freeing writes.
 *
 * All visible effects are those of php_request_shutdown(), in its order: shutdown functions,
 * destructors (and with them resources that only global objects hold, such as open files), output,
 * the extensions' request shutdown, resources, and objects that hold more than memory. Where that
 * is not certain, php_request_shutdown() itself is called.
 */
#include "engine.h"

#include <string.h>

#include <ext/standard/basic_functions.h>
#include <zend_extensions.h>
#include <zend_objects_API.h>
#include <zend_observer.h>

/* Objects of these extensions hold only memory, or a resource. */
static const char *const of_memory[] = { "Core", "SPL", "date", "hash", "json", "random",
	"Reflection", "standard" };

/* OPcache has no work to do for a copy. Other extensions may act when a request ends. */
static bool others_look_on(void)
{
	zend_llist_position position;

	if (ZEND_OBSERVER_ENABLED) {
		return true;
	}
	for (zend_extension *extension = zend_llist_get_first_ex(&zend_extensions, &position); extension;
		extension = zend_llist_get_next_ex(&zend_extensions, &position)) {
		if (extension->deactivate && strcmp(extension->name, "Zend OPcache")) {
			return true;
		}
	}
	return false;
}

static bool is_of_memory(const zend_object *object)
{
	const zend_class_entry *class = object->ce;

	if (object->handlers->free_obj == zend_object_std_dtor) {
		return true;
	}
	while (class->type == ZEND_USER_CLASS && class->parent) {
		class = class->parent;
	}
	if (class->type == ZEND_USER_CLASS || !class->info.internal.module) {
		return false;
	}
	for (size_t i = 0; i < sizeof(of_memory) / sizeof(*of_memory); i++) {
		if (!strcmp(class->info.internal.module->name, of_memory[i])) {
			return true;
		}
	}
	return false;
}

/* Connections, documents, handles, newest first. */
static void free_objects(void)
{
	for (uint32_t i = EG(objects_store).top; i-- > 1;) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (!IS_OBJ_VALID(object) || (OBJ_FLAGS(object) & IS_OBJ_FREE_CALLED)
			|| is_of_memory(object)) {
			continue;
		}
		GC_ADD_FLAGS(object, IS_OBJ_FREE_CALLED);
		GC_ADDREF(object);
		object->handlers->free_obj(object);
	}
}

/* As zend_close_rsrc_list(), which extensions may not call: the list may grow meanwhile. */
static void close_resources(void)
{
	for (uint32_t i = EG(regular_list).nNumUsed; i-- > 0;) {
		zval *entry = maitred_resource_at(i);
		if (Z_TYPE_P(entry) == IS_RESOURCE) {
			zend_list_close(Z_RES_P(entry));
		}
	}
}

/* The first steps of zend_shutdown_executor_values(). */
static void free_values(void)
{
	EG(flags) |= EG_FLAGS_IN_RESOURCE_SHUTDOWN;
	zend_try {
		close_resources();
	} zend_end_try();
	/* PHP calls no functions of scripts after this. */
	EG(active) = 0;
	zend_try {
		free_objects();
	} zend_end_try();
}

/* Errors after which PHP leaves the script by a longjmp (php_error_cb() in main/main.c). */
#define FATAL \
	(E_ERROR | E_RECOVERABLE_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR)

static void (*pass_on)(int, zend_string *, const uint32_t, zend_string *);

static void note_fatal(int type, zend_string *file, const uint32_t line, zend_string *message)
{
	if ((type & FATAL) && !(type & E_DONT_BAIL)) {
		maitred_engine.fatal = true;
	}
	pass_on(type, file, line, message);
}

void maitred_note_fatal_errors(void)
{
	pass_on = zend_error_cb;
	zend_error_cb = note_fatal;
}

static void end_request(void)
{
	if (!maitred_engine.copied || CG(unclean_shutdown) || EG(full_tables_cleanup)
		|| others_look_on()) {
		php_request_shutdown(NULL);
		return;
	}
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	EG(current_execute_data) = NULL;
	zend_llist_clean(&PG(tick_functions));
	php_call_shutdown_functions();
	zend_call_destructors();
	zend_try {
		php_output_end_all();
	} zend_end_try();
	zend_try {
		zend_unset_timeout();
	} zend_end_try();
	zend_deactivate_modules();
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	free_values();
	zend_try {
		zend_post_deactivate_modules();
	} zend_end_try();
	zend_try {
		sapi_deactivate();
	} zend_end_try();
}

/*
 * exit() in a shutdown function, as in phpMyAdmin's: its frames have ended one by one, and only the
 * rest of the list is left by a longjmp (zend_throw_exception_internal()). php_request_shutdown()
 * catches that, and the process is as clean as after any script.
 */
bool maitred_end_request(void)
{
	bool was_clean = !CG(unclean_shutdown);

	end_request();
	/* The engine clears the flag only when the next request starts. */
	return !CG(unclean_shutdown)
		|| (was_clean && !maitred_engine.fatal && !maitred_engine.client_gone);
}

void maitred_forget_last_error(void)
{
	if (EXPECTED(!PG(last_error_message))) {
		return;
	}
	zend_string_release(PG(last_error_message));
	PG(last_error_message) = NULL;
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
		PG(last_error_file) = NULL;
	}
	PG(last_error_type) = 0;
	PG(last_error_lineno) = 0;
}
