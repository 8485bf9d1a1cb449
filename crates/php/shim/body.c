/* The body of a request: from the exchange, or from the file in which the web server has stored it.
 */
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int body_file = -1;

void maitred_close_body(void)
{
	if (UNEXPECTED(body_file >= 0)) {
		close(body_file);
		body_file = -1;
	}
}

/* Returns false and logs a warning if the file cannot be read. */
static bool open_body(const char *path)
{
	if (body_file < 0) {
		body_file = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (body_file < 0) {
		php_error(E_WARNING, "REQUEST_BODY_FILE: open('%s') failed: %s (%d)", path,
			strerror(errno), errno);
	}
	return body_file >= 0;
}

static size_t read_part(const struct maitred_request *request, char *buffer, size_t capacity)
{
	ssize_t part;

	if (EXPECTED(body_file < 0)) {
		return maitred_engine.callbacks->read_body(request->exchange, buffer, capacity);
	}
	part = read(body_file, buffer, capacity);
	return part >= 0 ? (size_t) part : MAITRED_BODY_CUT;
}

/*
 * The front has stopped in the middle of a body: its client or the front itself is gone, or its
 * disk has failed. No script may take the part for the whole, so it ends; one that does not run yet
 * is not started.
 */
static void cut_body(void)
{
	/* After fastcgi_finish_request() the front has no further part in the request. */
	if (maitred_engine.finished) {
		return;
	}
	maitred_engine.body_is_cut = true;
	maitred_engine.client_gone = true;
	if (!PG(during_request_startup)) {
		maitred_leave_script();
	}
}

size_t maitred_read_body(char *buffer, size_t capacity)
{
	const struct maitred_request *request = maitred_engine.request;
	size_t done = 0;
	int64_t rest = SG(request_info).content_length - SG(read_post_bytes);

	if (!request || rest <= 0) {
		return 0;
	}
	if (UNEXPECTED(request->body_file && *request->body_file) && !open_body(request->body_file)) {
		return 0;
	}
	if ((uint64_t) rest < capacity) {
		capacity = (size_t) rest;
	}
	while (done < capacity) {
		size_t part = read_part(request, buffer + done, capacity - done);
		if (part == MAITRED_BODY_CUT) {
			cut_body();
			break;
		}
		if (part == 0) {
			break;
		}
		done += part;
	}
	return done;
}

static ssize_t read_nothing(php_stream *stream, char *buffer, size_t size)
{
	(void) buffer;
	(void) size;
	stream->eof = 1;
	return 0;
}

static int seek_in_nothing(php_stream *stream, zend_off_t offset, int whence, zend_off_t *position)
{
	(void) stream;
	(void) whence;
	*position = 0;
	return offset == 0 ? 0 : -1;
}

/*
 * Objects (SplFileObject, XMLReader) know their stream by its address alone, which is why PHP lets
 * no other code close it. It stays open until they close it, and is empty from here on.
 */
static void cut_off(php_stream *stream)
{
	static php_stream_ops nothing;

	/* The stream's data is freed as before. */
	nothing = *stream->ops;
	nothing.label = "Ended input";
	nothing.read = read_nothing;
	nothing.seek = seek_in_nothing;
	stream->ops = &nothing;
	stream->readpos = 0;
	stream->writepos = 0;
	stream->eof = 1;
}

/*
 * Closes the stream of a body, which would otherwise stay until the script ends, and with it every
 * open php://input, which reads from it.
 */
void maitred_release_body(php_stream *body)
{
	if (EXPECTED(!body)) {
		return;
	}
	/* A stream filter of the script may open something when its stream is closed. */
	for (uint32_t i = EG(regular_list).nNumUsed; i-- > 0;) {
		zval *entry = maitred_resource_at(i);
		php_stream *stream;

		if (Z_TYPE_P(entry) != IS_RESOURCE || Z_RES_P(entry)->type != php_file_le_stream()) {
			continue;
		}
		stream = Z_RES_P(entry)->ptr;
		if (!stream || stream == body || strcmp(stream->ops->label, "Input")) {
			continue;
		}
		if (stream->flags & PHP_STREAM_FLAG_NO_FCLOSE) {
			cut_off(stream);
		} else {
			zend_list_close(Z_RES_P(entry));
		}
	}
	/* Including its entry in the list: the next iteration over the list would find freed memory. */
	php_stream_close(body);
}
