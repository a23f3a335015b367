/* Runs network ${name} once a second on inputs that are all zero, and prints the first value of its first output. */
#include <${headers[0]}>
#include <deeploy_values.h>

<% P = name.upper() %>\
alignas(${P}_ARENA_ALIGNMENT) static unsigned char arena[${P}_ARENA_BYTES + 1];
% for side in ("inputs", "outputs"):
% for number, port in enumerate(ports[side]):
alignas(8) static unsigned char ${side[:-1]}${number}[${port["bytes"]}]; /* ${port["about"]} */
% endfor
% endfor

void setup() {
    Serial.begin(115200);
    if (${name}_init(arena, sizeof arena) != DEEPLOY_OK) Serial.println("the arena does not fit");
}

void loop() {
    const void *inputs[] = {${", ".join(f"input{number}" for number in range(len(ports["inputs"]))) or "nullptr"}};
    void *outputs[] = {${", ".join(f"output{number}" for number in range(len(ports["outputs"])))}};
    if (${name}_run(inputs, outputs) == DEEPLOY_OK) {
        static float values[${ports["outputs"][0]["elements"]}];
        deeploy_dequantize(&${name}_outputs[0], output0, values);
        Serial.println(values[0]);
    }
    delay(1000);
}
