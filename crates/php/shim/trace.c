/*
 * The stack of a script that runs in another process, read from outside while it runs.
 *
 * The other process is a fork of this one, so addresses are the same in both: the engine's globals,
 * classes, OPcache's memory. Its content is untrusted: each pointer is only read through the
 * callback, each loop and each string is bounded, and a failed read ends the walk. The walk reads
 * the same data as php-fpm (fpm_php_trace.c), and handles generators like debug_backtrace()
 * (zend_generator_check_placeholder_frame).
 */
#include "engine.h"

#include <string.h>

#include <zend_generators.h>

/* Most frames that are read for each wanted one; some of the engine's frames are no call. */
#define LOOKS_PER_FRAME 4

/* Most delegating generators (`yield from`) that are followed. */
#define DELEGATES_MAX 64

/* Longest piece of a string without a length that is read at once; a power of two. */
#define PIECE_BYTES 64

struct walk {
	const struct maitred_memory *memory;
	struct maitred_stack *stack;
	size_t looks;
};

static bool read_at(const struct walk *walk, uint64_t address, void *into, size_t length)
{
	return walk->memory->read(walk->memory->context, address, into, length);
}

static bool is_pointer(uint64_t address)
{
	return address != 0 && address % sizeof(void *) == 0;
}

static bool read_pointer(const struct walk *walk, uint64_t address, uint64_t *pointer)
{
	void *there = NULL;
	bool done = read_at(walk, address, &there, sizeof(there));

	*pointer = (uint64_t) (uintptr_t) there;
	return done;
}

/* A zend_string up to `capacity` - 1 bytes. The name of an anonymous class contains a NUL. */
static bool read_string(const struct walk *walk, uint64_t address, char *into, size_t capacity)
{
	size_t length = 0;

	into[0] = '\0';
	if (!is_pointer(address)
		|| !read_at(walk, address + offsetof(zend_string, len), &length, sizeof(length))) {
		return false;
	}
	length = MIN(length, capacity - 1);
	if (!read_at(walk, address + offsetof(zend_string, val), into, length)) {
		into[0] = '\0';
		return false;
	}
	into[length] = '\0';
	return true;
}

/* A NUL-terminated string: pages beyond its end are not touched. */
static void read_text(const struct walk *walk, uint64_t address, char *into, size_t capacity)
{
	size_t done = 0;

	into[0] = '\0';
	while (address != 0 && done < capacity - 1) {
		size_t piece = PIECE_BYTES - (size_t) (address + done) % PIECE_BYTES;
		piece = MIN(piece, capacity - 1 - done);
		if (!read_at(walk, address + done, into + done, piece)) {
			break;
		}
		if (memchr(into + done, '\0', piece)) {
			return;
		}
		done += piece;
	}
	into[done] = '\0';
}

/* The position of a frame of PHP code: the line of the last saved instruction. */
static bool read_place(
	const struct walk *walk, const zend_execute_data *data, struct maitred_frame *frame)
{
	uint64_t function = (uint64_t) (uintptr_t) data->func;
	uint64_t opline = (uint64_t) (uintptr_t) data->opline;
	uint64_t file;

	if (!read_pointer(walk, function + offsetof(zend_op_array, filename), &file)
		|| !read_string(walk, file, frame->file, sizeof(frame->file))) {
		return false;
	}
	if (is_pointer(opline)) {
		read_at(walk, opline + offsetof(zend_op, lineno), &frame->line, sizeof(frame->line));
	}
	return true;
}

static bool read_class(const struct walk *walk, uint64_t class, struct maitred_frame *frame)
{
	uint64_t name;

	return is_pointer(class)
		&& read_pointer(walk, class + offsetof(zend_class_entry, name), &name)
		&& read_string(walk, name, frame->class_name, sizeof(frame->class_name));
}

/* Adds the frame of a call, if it is one. False when something could not be read. */
static bool add_frame(struct walk *walk, uint64_t address, const zend_execute_data *data)
{
	struct maitred_stack *stack = walk->stack;
	struct maitred_frame *frame = &stack->frames[stack->count];
	uint64_t function = (uint64_t) (uintptr_t) data->func;
	/* The part of a zend_function that all kinds of functions have. */
	__typeof__(((zend_function *) 0)->common) common;

	if (!is_pointer(function) || !read_at(walk, function, &common, sizeof(common))) {
		return false;
	}
	/* Not all of it: the texts are long. */
	frame->address = address;
	frame->line = 0;
	frame->kind = MAITRED_FRAME_FUNCTION;
	frame->class_name[0] = frame->function[0] = frame->file[0] = '\0';
	if (common.function_name) {
		uint64_t name = (uint64_t) (uintptr_t) common.function_name;
		if (!read_string(walk, name, frame->function, sizeof(frame->function))) {
			return false;
		}
		if (common.scope) {
			if (!read_class(walk, (uint64_t) (uintptr_t) common.scope, frame)) {
				return false;
			}
			bool has_object = Z_TYPE(data->This) == IS_OBJECT;
			frame->kind = has_object ? MAITRED_FRAME_METHOD : MAITRED_FRAME_STATIC;
		}
	} else if (!ZEND_USER_CODE(common.type)) {
		/* The engine's own, such as the first frame of a fiber. */
		return true;
	} else if (ZEND_CALL_KIND(data) == ZEND_CALL_NESTED_CODE) {
		frame->kind = MAITRED_FRAME_INCLUDE;
	} else {
		frame->kind = MAITRED_FRAME_MAIN;
	}
	frame->has_file = ZEND_USER_CODE(common.type);
	if (frame->has_file && !stack->calls_only && !read_place(walk, data, frame)) {
		return false;
	}
	stack->count++;
	return true;
}

static bool is_full(const struct walk *walk)
{
	const struct maitred_stack *stack = walk->stack;

	if (stack->count >= stack->capacity) {
		return true;
	}
	/* The caller of the last wanted frame is the next frame that has a file. */
	return stack->count > stack->wanted && stack->frames[stack->count - 1].has_file;
}

static bool may_look(struct walk *walk)
{
	return !is_full(walk) && walk->looks++ < walk->stack->capacity * LOOKS_PER_FRAME;
}

/*
 * Delegating generators are not on the stack: there is only the placeholder of the outermost one,
 * and each points to the next, up to the running one, which is on the stack.
 */
static bool add_delegates(struct walk *walk, uint64_t generator)
{
	uint64_t frames[DELEGATES_MAX];
	size_t count = 0;

	while (count < DELEGATES_MAX) {
		uint64_t parent;
		if (!is_pointer(generator)
			|| !read_pointer(walk, generator + offsetof(zend_generator, node.parent), &parent)
			|| !read_pointer(walk, generator + offsetof(zend_generator, execute_data),
				&frames[count])) {
			return false;
		}
		if (!parent) {
			break;
		}
		count++;
		generator = parent;
	}
	while (count > 0 && may_look(walk)) {
		zend_execute_data data;
		uint64_t address = frames[--count];
		if (!is_pointer(address) || !read_at(walk, address, &data, sizeof(data))
			|| !add_frame(walk, address, &data)) {
			return false;
		}
	}
	return true;
}

static bool is_generator(const struct walk *walk, const zend_execute_data *data)
{
	uint64_t class;

	return Z_TYPE(data->This) == IS_OBJECT
		&& is_pointer((uint64_t) (uintptr_t) Z_OBJ(data->This))
		&& read_pointer(walk,
			(uint64_t) (uintptr_t) Z_OBJ(data->This) + offsetof(zend_object, ce), &class)
		&& class != 0 && class == (uint64_t) (uintptr_t) zend_ce_generator;
}

static int walk_frames(struct walk *walk)
{
	uint64_t address;

	if (!read_pointer(walk, (uint64_t) (uintptr_t) &EG(current_execute_data), &address)) {
		return MAITRED_STACK_BROKEN;
	}
	while (address) {
		zend_execute_data data;
		bool added = true;

		if (!may_look(walk)) {
			return MAITRED_STACK_CUT;
		}
		if (!is_pointer(address) || !read_at(walk, address, &data, sizeof(data))) {
			return MAITRED_STACK_BROKEN;
		}
		if (data.func) {
			added = add_frame(walk, address, &data);
		} else if (is_generator(walk, &data)) {
			added = add_delegates(walk, (uint64_t) (uintptr_t) Z_OBJ(data.This));
		}
		if (!added) {
			return MAITRED_STACK_BROKEN;
		}
		address = (uint64_t) (uintptr_t) data.prev_execute_data;
	}
	return MAITRED_STACK_WHOLE;
}

uint64_t maitred_php_running_request(const struct maitred_memory *memory, bool *is_running)
{
	struct maitred_engine engine;
	uint64_t address = (uint64_t) (uintptr_t) &maitred_engine;

	*is_running = false;
	if (!memory->read(memory->context, address, &engine, sizeof(engine))) {
		return 0;
	}
	*is_running = engine.request != NULL;
	return engine.requests;
}

const void *maitred_php_opcache_address(void)
{
	return zend_known_strings ? ZSTR_KNOWN(ZEND_STR_FILE) : NULL;
}

void maitred_php_trace(const struct maitred_memory *memory, struct maitred_stack *stack)
{
	struct walk walk = { .memory = memory, .stack = stack };
	uint64_t script = 0;

	stack->count = 0;
	read_pointer(&walk, (uint64_t) (uintptr_t) &SG(request_info).path_translated, &script);
	read_text(&walk, script, stack->script, sizeof(stack->script));
	stack->end = walk_frames(&walk);
}
