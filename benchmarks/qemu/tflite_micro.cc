/* A network by TensorFlow Lite Micro's interpreter: `model.tflite` lies in flash, the arena among the variables. */
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/schema/schema_generated.h"

extern "C" {
#include "program.h"
extern const unsigned char model_bytes[];
uint32_t peer_begin(void);
void peer_run(const void *input, void *output);
}

__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global model_bytes\n"
        "model_bytes: .incbin \"model.tflite\"\n"
        ".previous\n");

namespace {
alignas(16) uint8_t arena[ARENA_BYTES];
alignas(8) unsigned char resolver_place[sizeof(tflite::MicroMutableOpResolver<9>)];
alignas(8) unsigned char interpreter_place[sizeof(tflite::MicroInterpreter)];
tflite::MicroInterpreter *interpreter;
}

void *operator new(size_t, void *place) noexcept;

uint32_t peer_begin(void) {
    auto *const resolver = new (resolver_place) tflite::MicroMutableOpResolver<9>;
    resolver->AddAdd();
    resolver->AddAveragePool2D();
    resolver->AddConv2D();
    resolver->AddDepthwiseConv2D();
    resolver->AddDequantize();
    resolver->AddFullyConnected();
    resolver->AddQuantize();
    resolver->AddReshape();
    resolver->AddSoftmax();
    interpreter = new (interpreter_place)
        tflite::MicroInterpreter(tflite::GetModel(model_bytes), *resolver, arena, sizeof arena);
    if (interpreter->AllocateTensors() != kTfLiteOk) program_fail("the arena is too small");
    return (uint32_t)interpreter->arena_used_bytes();
}

void peer_run(const void *input, void *output) {
    TfLiteTensor *const x = interpreter->input(0), *const y = interpreter->output(0);
    memcpy(x->data.raw, input, x->bytes);
    if (interpreter->Invoke() != kTfLiteOk) program_fail("the network failed");
    memcpy(output, y->data.raw, y->bytes);
}
