/* SPDX-License-Identifier: MIT */

/*
 * A UCX that takes memory of GPUs, where neither is there: preloaded into a bridge, it says that it
 * does, and copies to and from the memory of the stand-in driver what the real UCX then sends and
 * receives in memory of the host. Who calls it has to be in a context, and to say what memory it
 * is.
 */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>
/* What is declared here is what the library shows. */
#pragma GCC visibility push(default)
#include <ucp/api/ucp.h>
#pragma GCC visibility pop

struct copied {
	void *host;
	CUdeviceptr device;
	size_t size;
	ucp_request_param_t of; /* what the bridge has asked for */
};

static void find(void *function, void *library, const char *name)
{
	void **place = function;

	*place = dlsym(library, name);
	if (!*place) {
		fprintf(stderr, "cuda_ucx: there is no %s\n", name);
		abort();
	}
}

static void find_in_driver(void *function, const char *name)
{
	static void *library;

	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	find(function, library, name);
}

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "cuda_ucx: %s: %d\n", what, (int)result);
	abort();
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
	ucs_status_t (*query)(ucp_context_h, ucp_context_attr_t *);
	ucs_status_t status;

	find(&query, RTLD_NEXT, "ucp_context_query");
	status = query(context, attr);
	attr->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
	return status;
}

static struct copied *copied_make(const void *device, size_t size, const ucp_request_param_t *of)
{
	CUresult (*attribute)(void *, CUpointer_attribute, CUdeviceptr);
	struct copied *c = malloc(sizeof(*c));
	unsigned type = 0;

	find_in_driver(&attribute, "cuPointerGetAttribute");
	must(attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)device),
	     "cuPointerGetAttribute");
	must(type == CU_MEMORYTYPE_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
	     "what is said to be a device's");
	*c = (struct copied){malloc(size), (CUdeviceptr)(uintptr_t)device, size, *of};
	return c;
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
	struct copied *c = arg;
	ucp_request_param_t of = c->of;

	free(c->host);
	free(c);
	of.cb.send(request, status, of.user_data);
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
				 const void *buffer, size_t count, const ucp_request_param_t *param)
{
	ucs_status_ptr_t (*send)(ucp_ep_h, unsigned, const void *, size_t, const void *, size_t,
				 const ucp_request_param_t *);
	CUresult (*to_host)(void *, CUdeviceptr, size_t);
	ucp_request_param_t other = *param;
	ucs_status_ptr_t request;
	struct copied *c;

	find(&send, RTLD_NEXT, "ucp_am_send_nbx");
	if (param->memory_type != UCS_MEMORY_TYPE_CUDA)
		return send(ep, id, header, header_length, buffer, count, param);
	c = copied_make(buffer, count, param);
	find_in_driver(&to_host, "cuMemcpyDtoH_v2");
	must(to_host(c->host, c->device, count), "cuMemcpyDtoH");
	other.memory_type = UCS_MEMORY_TYPE_HOST;
	other.cb.send = on_sent;
	other.user_data = c;
	request = send(ep, id, header, header_length, c->host, count, &other);
	if (!UCS_PTR_IS_PTR(request)) {
		free(c->host);
		free(c);
	}
	return request;
}

static void place(struct copied *c, ucs_status_t status)
{
	CUresult (*from_host)(CUdeviceptr, const void *, size_t);

	find_in_driver(&from_host, "cuMemcpyHtoD_v2");
	if (status == UCS_OK)
		must(from_host(c->device, c->host, c->size), "cuMemcpyHtoD");
	free(c->host);
	free(c);
}

static void on_received(void *request, ucs_status_t status, size_t length, void *arg)
{
	struct copied *c = arg;
	ucp_request_param_t of = c->of;

	place(c, status);
	of.cb.recv_am(request, status, length, of.user_data);
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *what, void *buffer, size_t count,
				      const ucp_request_param_t *param)
{
	ucs_status_ptr_t (*receive)(ucp_worker_h, void *, void *, size_t,
				    const ucp_request_param_t *);
	ucp_request_param_t other = *param;
	ucs_status_ptr_t request;
	struct copied *c;

	find(&receive, RTLD_NEXT, "ucp_am_recv_data_nbx");
	if (param->memory_type != UCS_MEMORY_TYPE_CUDA)
		return receive(worker, what, buffer, count, param);
	c = copied_make(buffer, count, param);
	other.memory_type = UCS_MEMORY_TYPE_HOST;
	other.cb.recv_am = on_received;
	other.user_data = c;
	request = receive(worker, what, c->host, count, &other);
	if (!UCS_PTR_IS_PTR(request))
		place(c, UCS_PTR_STATUS(request));
	return request;
}
