// Requests to the admin server. A token is kept for the session of the tab only.

const KEY = "edgeward-token";

export function token(): string {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setToken(text: string): void {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/** The server refused a request. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function send(method: string, path: string, body: string | undefined, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = {};
  if (token()) headers["Authorization"] = `Bearer ${token()}`;
  const response = await fetch(path, { method, headers, body, signal, cache: "no-store", credentials: "omit" });
  if (response.ok) return response;
  const text = await response.text();
  let message = text.trim();
  try {
    message = (JSON.parse(text) as { error?: string }).error ?? message;
  } catch {
    // The answer is a text.
  }
  throw new Refused(response.status, message || `status ${response.status}`);
}

export async function getJson<T>(path: string): Promise<T> {
  return (await send("GET", path, undefined)).json() as Promise<T>;
}

export async function post(path: string, body: unknown): Promise<unknown> {
  return (await send("POST", path, JSON.stringify(body))).json();
}

export async function put(path: string, body: string): Promise<string> {
  return (await send("PUT", path, body)).text();
}

/** Calls `event` with each event until the stream ends. EventSource cannot send a token. */
export async function follow<T>(path: string, signal: AbortSignal, event: (data: T) => void): Promise<void> {
  const response = await send("GET", path, undefined, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split("\n\n");
    rest = events.pop()!;
    const newest = events.pop();
    if (newest?.startsWith("data: ")) event(JSON.parse(newest.slice(6)) as T);
  }
}
