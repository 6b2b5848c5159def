// Forms that ask the admin server to do something. Each needs a token with a role.

import { Refused, post, put, setToken, token } from "./api";
import { byId, visible } from "./dom";

export function setUpTools(): void {
  const field = byId<HTMLInputElement>("token");
  field.value = token();
  field.addEventListener("change", () => setToken(field.value.trim()));
  onSubmit("explain", async () => {
    const url = byId<HTMLInputElement>("explain-url").value;
    const answer = (await post("/explain", { url })) as {
      steps: { step: string; decision: string; section?: string }[];
      cache_status: string | null;
    };
    const steps = answer.steps.map(({ step, decision, section }) => `${step}: ${decision}${section ? ` (${section})` : ""}`);
    return [...steps, answer.cache_status ? `Cache-Status: ${answer.cache_status}` : ""].join("\n");
  });
  onSubmit("purge", async () => {
    const kind = byId<HTMLSelectElement>("purge-kind").value;
    const target = byId<HTMLInputElement>("purge-target").value;
    const soft = byId<HTMLInputElement>("purge-soft").checked;
    const answer = (await post("/purge", { [kind]: [target], soft })) as { accepted: number };
    return `Purged: ${answer.accepted} scope accepted.`;
  });
  onSubmit("policy", () => put("/policy", byId<HTMLInputElement>("policy-name").value));
  onSubmit("reload", async () => {
    const { changes } = (await post("/reload", {})) as { changes: string[] };
    return changes.length ? `Reloaded:\n${changes.join("\n")}` : "Reloaded: nothing has changed.";
  });
}

function onSubmit(id: string, run: () => Promise<string>): void {
  byId(id).addEventListener("submit", async (event) => {
    event.preventDefault();
    const result = byId("result");
    result.textContent = "…";
    try {
      result.textContent = (await run()).split("\n").map(visible).join("\n");
    } catch (error) {
      const isDenied = error instanceof Refused && [401, 403].includes(error.status);
      const message = error instanceof Error ? error.message : String(error);
      result.textContent = visible(isDenied ? `Refused: ${message}` : `Failed: ${message}`);
      if (isDenied) byId("token").focus();
    }
  });
}
