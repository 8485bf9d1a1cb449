/*
 * How a copy of a booted application ends its request. Its process ends next, or becomes again what it
 * was, so nobody needs memory back that a script has had, and to free it costs: what the boot has made is
 * shared with other copies until somebody writes to it, and to free is to write.
 *
 * All that anybody can notice is done as php_request_shutdown() does it, in its order: functions for the
 * end, destructors, output, what extensions do at the end of a request, resources, and objects that have
 * more than memory. Where that is not certain, php_request_shutdown() does it.
 */
#include "engine.h"

#include <string.h>

#include <ext/standard/basic_functions.h>
#include <zend_extensions.h>
#include <zend_objects_API.h>
#include <zend_observer.h>

/* Objects of these extensions have nothing but memory, or what is a resource, too. */
static const char *const of_memory[] = { "Core", "SPL", "date", "hash", "json", "random", "Reflection",
	"standard" };

/* OPcache holds nothing for a copy. Others may have something to say when a request ends. */
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

static bool has_destructor(const zend_object *object)
{
	return !(OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED)
		&& (object->ce->destructor || object->handlers->dtor_obj != zend_objects_destroy_object);
}

static bool any_has_destructor(void)
{
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		const zend_object *object = EG(objects_store).object_buckets[i];
		if (IS_OBJ_VALID(object) && has_destructor(object)) {
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

/* Connections, documents, handles: the last that was made is the first. */
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

/* Resources first, in which objects play no part. */
static void free_values(void)
{
	uint32_t top = EG(objects_store).top;

	EG(objects_store).top = 1;
	zend_try {
		zend_shutdown_executor_values(true);
	} zend_end_try();
	EG(objects_store).top = top;
	zend_try {
		free_objects();
	} zend_end_try();
}

void maitred_end_request(void)
{
	if (!maitred_engine.copied || CG(unclean_shutdown) || EG(full_tables_cleanup) || others_look_on()) {
		php_request_shutdown(NULL);
		return;
	}
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	EG(current_execute_data) = NULL;
	zend_llist_clean(&PG(tick_functions));
	php_call_shutdown_functions();
	if (any_has_destructor()) {
		zend_call_destructors();
	}
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
