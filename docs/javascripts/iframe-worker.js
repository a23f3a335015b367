/* Browsers refuse to start workers for pages that are opened from a file. The search is one: here, its script runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href);
      script.onload = () => this.flush();
      frame.contentDocument.head.append(script);
    }

    postMessage(data) {
      this.waiting.push(data);
      if (this.isReady) this.flush();
    }

    flush() {
      this.isReady = true;
      for (const data of this.waiting.splice(0)) this.scope.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
