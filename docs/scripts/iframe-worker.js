// Browsers start no workers for pages that are opened from the disk. The search's script then runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.ready = new Promise((resolve) => {
        this.frame.onload = () => {
          this.frame.onload = null
          const inner = this.frame.contentWindow
          inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = inner.document.createElement("script")
          script.onload = () => resolve(inner)
          script.src = new URL(address, location)
          inner.document.body.append(script)
        }
      })
      document.body.append(this.frame)
    }

    async postMessage(data) {
      const inner = await this.ready
      inner.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
